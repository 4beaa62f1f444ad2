"""No result is believed that the machine cannot reach, and no honest one is accused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_roof import KIB, arch, made_up

from kernloom.config.schema import Argument, Cost, Kernel, Step, Tensor, Workload
from kernloom.measure.plausible import (
    ANY_DEVICE,
    LEAST_UNCERTAINTY,
    Work,
    calibrated_ceiling,
    coarse_ceiling,
    least_work,
    slowest_ns,
)
from kernloom.measure.roof import Calibration

MIB = 1024 * KIB


def doubt(flops: float, nbytes: float, ns: float, threads: int = 1) -> str:
    ceiling = calibrated_ceiling(made_up(), "float32", threads)
    assert ceiling
    return ceiling.doubt(Work(flops, nbytes), ns)


def test_operations_above_the_peak_and_its_uncertainty_are_doubted_with_both_rates():
    at_peak = 1e6 / 100
    assert not doubt(1e6, 0, at_peak)
    assert not doubt(1e6, 0, at_peak / (1 + LEAST_UNCERTAINTY) * 1.001)
    text = doubt(1e6, 0, at_peak / 2)
    assert "200 GFLOP/s" in text and "at most 100 GFLOP/s" in text


def test_any_pattern_of_access_may_be_the_fastest():
    nbytes = 16 * KIB
    assert not doubt(0, nbytes, nbytes / (200 * 1.2))
    text = doubt(0, nbytes, nbytes / 1000)
    assert "1,000 GB/s" in text and "L1 gives at most 240 GB/s" in text


def test_what_the_nearer_caches_can_hold_is_not_counted_for_the_farther_ones():
    all_caches = 32 * KIB + 1024 * KIB + 32768 * KIB
    # Half of it may stay in the caches: that is faster than memory, and honest.
    assert not doubt(0, 2 * all_caches, all_caches / (20 * 1.2))
    assert "memory gives at most" in doubt(0, 100 * all_caches, 99 * all_caches / (20 * 1.2 * 1.5))


def test_threads_bring_their_own_peaks_and_caches():
    assert doubt(1e6, 0, 1e6 / 360)
    assert not doubt(1e6, 0, 1e6 / 360, threads=4)


def test_the_uncertainty_follows_the_spread_of_the_calibration():
    shaky = replace(
        made_up(), peaks=tuple(replace(p, processes=(60.0, 100.0)) for p in made_up().peaks)
    )
    ceiling = calibrated_ceiling(shaky, "float32", 1)
    assert ceiling and not ceiling.doubt(Work(1e6, 0), 1e6 / 170)
    assert ceiling.doubt(Work(1e6, 0), 1e6 / 190)


def test_every_vector_of_the_machine_counts_whatever_the_arch_of_the_kernel():
    made: Calibration = replace(made_up(), peaks=tuple(reversed(made_up().peaks)))
    ceiling = calibrated_ceiling(made, "float32", 1)
    assert ceiling and not ceiling.doubt(Work(1e6, 0), 1e6 / 100)
    assert calibrated_ceiling(made, "uint8", 1) is None


@pytest.mark.parametrize(
    ("work", "ns", "doubted"),
    [
        (Work(0, 12 * 1000), 2.0, True),  # nothing was done
        (Work(0, 2e6), 2.0, True),  # 1,000,000 GB/s
        (Work(0, 2e6), 2e6 / 400, False),
        (Work(2e6, 0), 1.0, True),
        (Work(2e6, 0), 2e6 / 250, False),
        (Work(0, 0), 2.0, False),
        (Work(1e9, 1e9), 0.0, False),
    ],
)
def test_without_a_calibration_the_absurd_is_still_doubted(work: Work, ns: float, doubted: bool):
    assert bool(coarse_ceiling(arch(), "float32", 1, 4).doubt(work, ns)) is doubted


def test_of_an_unknown_device_only_the_absurd_is_doubted():
    assert not ANY_DEVICE.doubt(Work(1e9, 1e9), 1e9 / 2e4)
    assert "1,000,000 GB/s" in ANY_DEVICE.doubt(Work(0, 1e9), 1e3)


def workload(**changes: object) -> Workload:
    kernel = Kernel(
        "scale",
        {
            "x": Argument("tensor", "read", ("n",)),
            "t": Argument("tensor", "write", ("n",)),
            "y": Argument("tensor", "write", ("n",)),
        },
        {},
    )
    return replace(
        Workload(
            "scaled",
            {"n": 1000},
            {name: Tensor(("n",)) for name in "xty"},
            {"scale": kernel},
            {"y": "2 * x"},
            {"call": Step("scale")},
            cost=Cost("n", "100 * n * element"),
        ),
        **changes,  # type: ignore[arg-type]
    )


def test_bytes_that_a_kernel_need_not_move_are_not_held_against_it():
    assert least_work(workload()) == Work(1000, 2 * 4000)
    assert least_work(workload(cost=Cost("n", "n * element"))).bytes == 4000


def test_without_a_stated_cost_the_outputs_are_the_least_work():
    assert least_work(workload(cost=Cost())) == Work(0, 4000)


def test_a_result_is_judged_by_the_slow_end_of_its_interval():
    assert slowest_ns({"median_ns": 10.0, "ci_high_ns": 12.0}) == 12.0
    assert slowest_ns({"median_ns": 10.0}) == 10.0
    assert slowest_ns({}) == 0.0
