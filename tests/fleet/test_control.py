"""Whether measurements made during a build agree with their repetitions in quiet."""

from __future__ import annotations

from typing import Any

import pytest

from kernloom.fleet.control import CONTROLS, controls, disturbed
from kernloom.measure.trial import Trial


def timed(median: float, half: float = 0.0, status: str = "ok") -> Trial:
    metrics = {"median_ns": median, "ci_low_ns": median - half, "ci_high_ns": median + half}
    return Trial(
        id="0" * 16,
        workload="axpy",
        case="default",
        target="host",
        status=status,
        verified=status == "ok",
        metrics=metrics if status == "ok" else {},
    )


@pytest.mark.parametrize(
    ("ratios", "half", "expected"),
    [
        ([1.0] * 7, 0.0, False),
        # Two processes of a kernel may differ.
        ([1.1, 0.9, 1.0, 1.0, 1.2, 1.0, 1.0], 0.0, False),
        ([1.05] * 7, 0.0, True),
        ([1.1, 1.1, 1.1, 1.1, 1.0, 1.0, 1.0], 0.0, True),
        # Within their intervals, but all of them slower.
        ([1.05] * 7, 10.0, True),
        ([1.05] * 6 + [0.99], 10.0, False),
        ([0.9] * 7, 0.0, True),
        ([1.015] * 7, 0.0, False),
    ],
)
def test_disturbance(ratios: list[float], half: float, expected: bool) -> None:
    quiet = [timed(100, half)] * len(ratios)
    assert disturbed([timed(100 * ratio, half) for ratio in ratios], quiet) is expected


def test_repetitions_that_fail_disagree() -> None:
    assert disturbed([timed(100)] * 7, [timed(100, status="crashed")] * 7)
    assert not disturbed([], [])


def test_controls_are_spread_over_the_whole_build() -> None:
    plan: Any = None
    held = [(plan, timed(number + 1)) for number in range(100)]
    held[50] = (plan, timed(1, status="wrong"))
    chosen = [int(trial.metrics["median_ns"]) - 1 for _, trial in controls(held)]
    assert (chosen[0], chosen[-1], len(chosen)) == (0, 99, CONTROLS)
    assert chosen == sorted(set(chosen))
    assert len(controls(held[:3])) == 3
    assert controls([held[50]]) == []
