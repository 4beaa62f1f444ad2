"""What makes a verified time suspicious, and what never does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kernloom.config.schema import Policy
from kernloom.measure.hidden import hidden_work
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
    watch=Watch((0,) * COUNT, (0,) * COUNT, VARIED, 0, int(8e6), int(2e6)),
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
    return "; ".join(hidden_work(processes, fake))


SLEEPING = watched(replace(HONEST, wall_ns=(200 * US,) * COUNT), voluntary=(9,) * COUNT)
REUSING = replace(HONEST, cpu_ns=(90 * US, 5 * US) * (COUNT // 2))


def test_an_honest_kernel_is_not_accused() -> None:
    assert said(HONEST) == said(HONEST, HONEST) == ""
    assert said(replace(HONEST, watch=None)) == ""


@pytest.mark.parametrize(
    ("process", "says"),
    [
        (watched(others_ns=(100_000,) * COUNT), "other threads or processes"),
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
    others = watched(others_ns=(100_000,) * COUNT)
    assert said(others, clock="wall") == said(SLEEPING, clock="wall") == ""
    assert said(others, bench=FakeBench(libraries=True)) == ""
