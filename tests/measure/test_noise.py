"""Signs that a result is not to be trusted, each said with what to do."""

from __future__ import annotations

from kernloom.measure.noise import kendall, warnings_of
from kernloom.measure.trial import Samples


def process(wall: float, cpu: float | None = None, switched: int = 0, inner: int = 100) -> Samples:
    times = (wall,) * 10
    own = (wall if cpu is None else cpu,) * 10
    return Samples(inner, times, own, (1,) * switched + (0,) * (10 - switched))


def said(*processes: Samples, clock: str = "cpu", threads: int = 1) -> str:
    return "\n".join(warnings_of(processes, clock, threads, 2.5))  # type: ignore[arg-type]


def test_a_steady_machine_gives_no_warning():
    assert said(*[process(1000) for _ in range(8)]) == ""


def test_others_on_the_core_are_named_with_the_load():
    text = said(process(1000, 700, switched=6))
    assert "others took the core during 60% of the samples (load 2.5 on" in text
    assert "CPU time leaves that out" in text


def test_wall_time_counts_what_others_took_and_the_warning_says_what_to_do():
    text = said(process(1000, 700, switched=6), clock="wall")
    assert "wall time counts it" in text
    assert "measure.scheduling=fifo or measure.clock=cpu" in text
    assert "measure.clock=cpu" not in said(process(1000, 700, switched=6), clock="wall", threads=2)


def test_a_kernel_that_waits_is_told_from_one_whose_core_is_taken():
    assert "the kernel waited for 40% of the time" in said(process(1000, 600))
    assert said(process(1000, 600), clock="wall") == ""


def test_a_machine_that_slows_down_over_the_rounds_is_noticed():
    text = said(*[process(1000 + 20 * number) for number in range(9)])
    assert "the machine became 12% slower from the first rounds to the last" in text


def test_a_single_slow_round_is_no_drift():
    assert said(*[process(1000 if n != 4 else 1500) for n in range(9)]) == ""


def test_samples_at_the_edge_of_the_clock_are_named():
    assert "raise measure.min_sample_us" in said(process(50, inner=1))


def test_kendalls_tau_is_one_for_a_rise_and_none_for_no_order():
    assert kendall([1, 2, 3, 4]) == 1
    assert kendall([4, 3, 2, 1]) == -1
    assert kendall([1, 1, 1]) == 0


def test_processes_that_agree_on_one_of_two_times_are_told_apart():
    times = [1000, 1005, 1500, 995, 1510, 1002, 1495, 1001, 1505, 1000]
    text = said(*[process(time) for time in times])
    assert "the processes fall into two groups, around 1000 and 1502 ns" in text


def test_a_wide_spread_is_no_two_groups():
    assert "groups" not in said(*[process(1000 + 37 * (n * 7 % 10)) for n in range(10)])
