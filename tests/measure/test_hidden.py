"""What makes a verified time suspicious, and what never does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kernloom.config.schema import Policy
from kernloom.measure.hidden import CONFIRMING, confirmed, hidden_work
from kernloom.measure.trial import Samples, Watch

COUNT = 8
POLICY = Policy("p", COUNT, 1, 1, 1, 500)
VARIED = (True, False) * (COUNT // 2)
US = 1000.0
HONEST = Samples(
    10,
    (50 * US,) * COUNT,
    (50 * US,) * COUNT,
    (0,) * COUNT,
    watch=Watch((0,) * COUNT, (0,) * COUNT, VARIED, 1, 0, int(8e6), int(2e6)),
)


@dataclass
class FakeBench:
    libraries: bool = False


@dataclass
class FakeSampler:
    """What `hidden_work` asks of a sampler."""

    clock: str = "cpu"
    threads: int = 1
    bench: FakeBench = field(default_factory=FakeBench)
    policy: Policy = POLICY


def watched(samples: Samples = HONEST, **changed: Any) -> Samples:
    assert samples.watch
    return replace(samples, watch=replace(samples.watch, **changed))


def said(*processes: Samples, **sampler: Any) -> str:
    fake: Any = FakeSampler(**sampler)
    return "; ".join(hidden_work(processes, fake).values())


SLEEPING = watched(replace(HONEST, wall_ns=(200 * US,) * COUNT), voluntary=(9,) * COUNT)
REUSING = replace(HONEST, cpu_ns=(90 * US, 5 * US) * (COUNT // 2))


def test_an_honest_kernel_is_not_accused() -> None:
    assert said(HONEST) == said(HONEST, HONEST) == ""
    assert said(replace(HONEST, watch=None)) == ""


@pytest.mark.parametrize(
    ("process", "says"),
    [
        (watched(others_ns=(200_000,) * COUNT), "other threads or processes"),
        (watched(left="1 thread"), "left 1 thread running"),
        (SLEEPING, "slept or waited for 75%"),
        (REUSING, "90.0 µs of CPU time after its inputs changed, and 5.00 µs"),
        (watched(elapsed_ns=int(900e6)), "by the engine's clock"),
    ],
    ids=["others", "left", "sleep", "reuse", "clock"],
)
def test_work_that_is_hidden_is_named(process: Samples, says: str) -> None:
    assert says in said(process)
    assert says in said(process, process, process)


def test_a_busy_machine_is_not_held_against_a_kernel() -> None:
    waited = 12_000_000
    queued = replace(HONEST, wall_ns=(200 * US,) * COUNT)
    assert said(watched(queued, voluntary=(1,) * COUNT, queued_ns=waited)) == ""
    # Interrupted, but never waiting by itself.
    assert said(queued) == ""
    late = watched(elapsed_ns=int(900e6), delays_ns=int(895e6))
    assert said(late) == ""
    # One process of several was held up outside of its samples.
    assert said(watched(elapsed_ns=int(900e6)), HONEST, HONEST) == ""


def test_threads_that_wait_for_each_other_reuse_nothing() -> None:
    late = replace(HONEST, wall_ns=(1900 * US, 50 * US) * (COUNT // 2))
    assert said(late, clock="wall", threads=2) == ""
    # One thread did the tasks of both in some samples.
    uneven = replace(HONEST, cpu_ns=(100 * US, 50 * US) * (COUNT // 2))
    assert said(uneven, clock="wall", threads=2) == ""
    assert "results are kept" in said(REUSING, clock="wall", threads=2)


def test_noise_in_one_sample_is_no_reuse() -> None:
    slow = replace(HONEST, cpu_ns=(400 * US, *(50 * US,) * (COUNT - 1)))
    assert said(slow) == ""
    assert said(REUSING, HONEST, HONEST) == ""


def test_wall_time_hides_neither_threads_nor_sleep() -> None:
    others = watched(others_ns=(200_000,) * COUNT)
    assert said(others, clock="wall") == said(SLEEPING, clock="wall") == ""
    assert said(others, bench=FakeBench(libraries=True)) == ""


def test_what_a_change_costs_is_no_reuse() -> None:
    # Runs of some nanoseconds, the inputs of each changed, since the count was found on a busy
    # machine.
    short = replace(HONEST, cpu_ns=(40.1, 26.1) * (COUNT // 2))
    assert said(short) == said(short, short, short) == ""
    assert said(watched(short, stride=60)) == ""
    # A replay of work that lasts as long as many changes is found.
    replayed = replace(HONEST, cpu_ns=(90.0, 26.1) * (COUNT // 2))
    assert said(replayed) == ""
    assert "results are kept" in said(watched(replayed, stride=60))


def test_samples_with_a_proof_are_not_compared() -> None:
    proven = (None, True, None, True, False, True, False, False)
    late = (400 * US, 50 * US, 400 * US, *(50 * US,) * 5)
    assert said(watched(replace(HONEST, cpu_ns=late), varied=proven)) == ""
    reused = (50 * US, 90 * US, 50 * US, 90 * US, 5 * US, 90 * US, 5 * US, 5 * US)
    assert "kept" in said(watched(replace(HONEST, cpu_ns=reused), varied=proven))


def test_clocks_that_are_not_read_at_once_hide_no_threads() -> None:
    brief = replace(HONEST, inner=1, wall_ns=(50.0,) * COUNT, cpu_ns=(50.0,) * COUNT)
    assert said(watched(brief, others_ns=(4000,) * COUNT)) == ""
    # Times of other threads lag behind by up to a tick.
    late = watched(others_ns=(4_000_000,) * COUNT)
    assert said(late, clock="cpu", threads=2) == ""
    # One process of several met a disturbance of any size.
    assert said(late, HONEST, HONEST) == ""


def test_a_short_sample_that_is_preempted_does_not_sleep() -> None:
    brief = replace(HONEST, wall_ns=(3 * US,) * COUNT, cpu_ns=(2 * US,) * COUNT)
    assert said(watched(brief, voluntary=(1,) * COUNT)) == ""
    # The first process of several waited.
    assert said(SLEEPING, HONEST, HONEST) == ""


def test_the_engines_clock_is_not_compared_where_delays_are_unknown() -> None:
    assert said(watched(elapsed_ns=0, delays_ns=0)) == ""
    assert said(watched(elapsed_ns=int(22e6))) == ""


@pytest.mark.parametrize(("again", "accused"), [(HONEST, False), (REUSING, True)])
def test_a_suspicion_is_confirmed_by_further_processes(again: Samples, accused: bool) -> None:
    fake: Any = FakeSampler()
    taken: list[Samples] = []

    def sample() -> Samples:
        taken.append(again)
        return again

    assert bool(confirmed(hidden_work([REUSING], fake), fake, sample)) == accused
    assert len(taken) == CONFIRMING
    assert confirmed(hidden_work([HONEST], fake), fake, sample) == []
    assert len(taken) == CONFIRMING


def test_a_device_without_a_clock_of_cpu_time_is_compared_by_wall_time() -> None:
    timed = replace(HONEST, cpu_ns=(), inner=1)
    assert said(timed, clock="wall") == said(timed, timed, clock="wall") == ""
    reusing = replace(timed, wall_ns=(900 * US, 5 * US) * (COUNT // 2))
    assert "900 µs after its inputs changed, and 5.00 µs" in said(reusing, clock="wall")
    assert "kept" in said(reusing, reusing, clock="wall")
    # Work-items of several threads may start late.
    late = replace(timed, wall_ns=(9 * US, 1 * US) * (COUNT // 2))
    assert said(late, clock="wall") == ""
    uneven = replace(timed, wall_ns=(100 * US, 55 * US) * (COUNT // 2))
    assert said(uneven, uneven, clock="wall") == ""
