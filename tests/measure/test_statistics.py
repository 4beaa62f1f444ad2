"""Times are reduced the same way every time, and an interval says how far to trust them."""

from __future__ import annotations

import numpy
import pytest

from kernloom.measure.statistics import (
    LARGE,
    chosen_clock,
    median_interval,
    metrics_of,
    outlier_share,
    ratio,
    timing,
    two_sided,
)
from kernloom.measure.trial import Samples


def samples(cpu, wall=None, inner=4, involuntary=None):
    wall = wall or tuple(2 * time for time in cpu)
    return Samples(inner, tuple(wall), tuple(cpu), tuple(involuntary or [0] * len(cpu)))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 12, 15, 30])
def test_the_interval_is_that_of_a_drawn_bootstrap(count):
    values = numpy.random.default_rng(count).lognormal(size=count)
    draws = numpy.random.default_rng(1).integers(0, count, (100_000, count))
    medians = numpy.median(values[draws], axis=1)
    low, high = numpy.percentile(medians, [2.5, 97.5], method="inverted_cdf")
    interval = median_interval(list(values))
    assert interval.middle == pytest.approx(numpy.median(values))
    # Drawing may land on a neighbouring value of the bootstrap distribution, never further away.
    near = numpy.unique(medians)
    for exact, drawn in ((interval.low, low), (interval.high, high)):
        assert abs(numpy.searchsorted(near, exact) - numpy.searchsorted(near, drawn)) <= 2


def test_the_interval_of_many_values_is_that_of_the_exact_method():
    values = list(numpy.random.default_rng(3).normal(100, 1, LARGE))
    many, fewer = median_interval(values), median_interval(values[:-1])
    assert many.low == pytest.approx(fewer.low, rel=1e-3)
    assert many.high == pytest.approx(fewer.high, rel=1e-3)
    assert many.low < many.middle < many.high


def test_the_same_samples_always_give_the_same_interval():
    values = [3.0, 1.0, 2.0, 5.0, 4.0, 9.0]
    assert median_interval(values) == median_interval(list(reversed(values)))


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    draw = numpy.random.default_rng(0)
    intervals = [median_interval(list(draw.normal(10, 1, 15))) for _ in range(1000)]
    covered = sum(interval.low <= 10 <= interval.high for interval in intervals)
    assert 0.92 <= covered / 1000 <= 0.99


def test_the_relative_half_width_is_a_share_of_the_median():
    assert median_interval([5.0] * 4).relative_half_width == 0
    assert median_interval([99.0, 100.0, 101.0]).relative_half_width == pytest.approx(0.01)


def test_processes_are_reduced_to_their_medians_before_they_are_compared():
    slow_start = [samples([10, 10, 500]), samples([11, 11, 500]), samples([12, 12, 500])]
    interval = timing(slow_start, "cpu")
    assert interval.middle == 11
    assert (interval.low, interval.high) == (10, 12)


def test_a_single_process_is_judged_by_its_samples():
    interval = timing([samples([1, 2, 3, 4, 5, 6, 7])], "cpu")
    assert interval.middle == 4
    assert 1 < interval.low < 4 < interval.high < 7


def test_auto_is_cpu_time_for_one_thread_and_wall_time_for_several():
    assert chosen_clock("auto", 1) == "cpu"
    assert chosen_clock("auto", 2) == "wall"
    assert chosen_clock("wall", 1) == "wall"
    assert chosen_clock("cpu", 8) == "cpu"
    assert metrics_of([samples([10.0])], "wall")["median_ns"] == 20


def test_metrics_are_flat_numbers():
    measured = [samples([10, 12, 11], involuntary=[0, 2, 1]), samples([20, 22, 21])]
    metrics = metrics_of(measured, "cpu", flops=310, bytes=62)
    assert metrics == {
        "median_ns": 16,
        "ci_low_ns": 11,
        "ci_high_ns": 21,
        "min_ns": 10,
        "wall_ns": 32,
        "cpu_ns": 16,
        "gflops": 310 / 16,
        "gbytes_per_s": 62 / 16,
        "samples": 6,
        "processes": 2,
        "inner": 4,
        "outlier_share": 0,
        "involuntary_switches": 3,
        "deterministic": [],
    }


def test_rates_are_left_out_where_a_workload_does_not_say_what_it_does():
    assert "gflops" not in metrics_of([samples([10.0])], "cpu")
    assert "gbytes_per_s" not in metrics_of([samples([10.0])], "cpu", flops=5)


def test_a_clock_that_stood_still_gives_no_rate():
    assert "gflops" not in metrics_of([samples([0.0], wall=[5.0])], "cpu", flops=5)


def test_nothing_measured_gives_no_numbers():
    assert metrics_of([], "cpu") == {"deterministic": []}
    assert metrics_of([Samples(1, (), (), ())], "cpu") == {"deterministic": []}


def test_outliers_are_counted_and_never_dropped():
    disturbed = [100, 101, 102, 103, 104, 105, 106, 107, 108, 900]
    assert outlier_share([disturbed]) == pytest.approx(0.1)
    assert metrics_of([samples(disturbed)], "cpu")["samples"] == 10


def test_the_steps_of_a_coarse_clock_are_no_outliers():
    assert outlier_share([[1000.0] * 9 + [1005.0]]) == 0


def test_a_ratio_is_taken_round_by_round_so_that_what_disturbs_a_round_cancels():
    rounds = [1.0, 3.0, 1.5, 9.0, 2.0, 4.0]
    slower = [samples([factor * 110] * 3) for factor in rounds]
    faster = [samples([factor * 100] * 3) for factor in rounds]
    found = ratio(slower, faster, "cpu")
    assert (found.middle, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))


def test_the_ratio_of_a_single_round_is_as_uncertain_as_both_times():
    found = ratio([samples([100, 110, 120])], [samples([50, 55, 60])], "cpu")
    assert found.middle == pytest.approx(2)
    assert found.low < 2 < found.high


def test_a_median_far_from_zero_is_improbable_and_one_around_it_is_not():
    assert two_sided([0.02, 0.021, 0.019, 0.022, 0.018]) == 0
    assert two_sided([-0.01, 0.01, -0.02, 0.02, 0.0]) == 1
