"""Samples drawn small, without making noise look like news."""

from __future__ import annotations

from kernloom.measure.trial import Samples
from kernloom.report.sparkline import WIDTH, samples_line, sparkline


def process(*wall, cpu=()) -> Samples:
    return Samples(inner=1, wall_ns=wall, cpu_ns=cpu, involuntary=(0,) * len(wall))


def test_the_lowest_and_the_highest_value_span_the_scale():
    assert sparkline([100, 150, 200]) == "▁▄▇"
    assert sparkline([100, 100, 100, 100, 400]) == "▁▁▁▁▇"


def test_values_within_a_percent_are_a_flat_line():
    assert sparkline([1000, 1009, 1004, 1000]) == "▄▄▄▄"
    assert sparkline([5, 5, 5]) == "▄▄▄"
    assert sparkline([0, 0]) == "▄▄"


def test_a_few_percent_do_not_fill_the_scale():
    assert sparkline([980, 1000, 1020]) == "▃▄▅"


def test_many_values_are_drawn_by_the_medians_of_neighbours():
    assert sparkline([100] * 160 + [200] * 160) == "▁" * 8 + "▇" * 8
    assert len(sparkline(list(range(1, 18)))) == WIDTH
    assert sparkline([100, 100, 900, 200, 200, 200], width=2) == "▁▇"


def test_one_value_or_none_is_not_drawn():
    assert sparkline([]) == sparkline([7]) == ""


def test_one_process_shows_its_samples_and_several_their_medians(make_trial):
    trial = make_trial()
    assert samples_line(trial, [process(100, 150, 200)]) == "▁▄▇"
    assert samples_line(trial, [process(100, 100, 900), process(200, 200, 1)]) == "▁▇"
    assert samples_line(trial, [process(), process(100, 200)]) == "▁▇"
    assert samples_line(trial, []) == ""


def test_the_clock_that_ranks_is_the_one_drawn(make_trial):
    measured = [process(100, 900, cpu=(200, 100))]
    assert samples_line(make_trial(conditions={"clock": "cpu"}), measured) == "▇▁"
    assert samples_line(make_trial(conditions={"clock": "wall"}), measured) == "▁▇"
    assert samples_line(make_trial(conditions={"clock": "cpu"}), [process(1, 2)]) == "▁▇"
