"""Control of measurements made while compilers ran on other cores.

Some of them are repeated in quiet. If they agree, all are as good as if nothing had been built
meanwhile; if not, none of them counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernloom.base.gauges import ranking_gauge
from kernloom.measure.statistics import median
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned

CONTROLS = 7
"""Number of trials that are repeated."""
FLOOR = 0.02
"""Difference that is no disturbance: a fifth of what two processes of the same kernel may differ by
(`measure.ranking.BETWEEN_PROCESSES`)."""

Held = Sequence[tuple[Planned, Trial]]


def controls(held: Held) -> list[tuple[Planned, Trial]]:
    """The trials to repeat: evenly spread over the time of the build, first and last included."""
    good = [(plan, trial) for plan, trial in held if trial.good and ranking_gauge(trial.metrics)]
    if len(good) <= CONTROLS:
        return good
    last = len(good) - 1
    return [good[last * number // (CONTROLS - 1)] for number in range(CONTROLS)]


def disturbed(before: Sequence[Trial], quiet: Sequence[Trial]) -> bool:
    """Whether trials measured during the build differ from their repetitions: most of them by more
    than their intervals, or all of them in the same direction."""
    if not before:
        return False
    found = [_compared(one, other) for one, other in zip(before, quiet, strict=True)]
    if sum(not agrees for agrees, _ in found) > len(found) / 2:
        return True
    ratios = [ratio for _, ratio in found]
    one_sided = len(ratios) == CONTROLS and (min(ratios) > 1 or max(ratios) < 1)
    return one_sided and abs(median(ratios) - 1) > FLOOR


def _compared(one: Trial, other: Trial) -> tuple[bool, float]:
    """Whether two measurements of a trial agree, and their ratio."""
    gauge = ranking_gauge(one.metrics)
    if gauge is None or not other.good or not other.metrics.get(gauge.name):
        return False, 1.0
    ratio = float(one.metrics[gauge.name]) / float(other.metrics[gauge.name])
    bounds: list[Any] = [
        metrics.get(key)
        for metrics in (one.metrics, other.metrics)
        for key in (gauge.low, gauge.high)
    ]
    if None in bounds:
        return abs(ratio - 1) <= FLOOR, ratio
    low, high, other_low, other_high = map(float, bounds)
    return abs(ratio - 1) <= FLOOR or (low <= other_high and other_low <= high), ratio
