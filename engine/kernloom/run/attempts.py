"""Earlier attempts of a trial: what they show of drift, and whether they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernloom.base.gauges import TIME
from kernloom.measure.drift import drift_metrics, excludes, look_of, looked, seconds_of
from kernloom.measure.trial import Trial
from kernloom.run.fleet import BESIDE_BUILDS
from kernloom.store.store import Store

MOST = 50
"""Newest attempts that count."""


def with_attempts(trial: Trial, drift: float, store: Store) -> Trial:
    """A measured trial with what its stored attempts show: an interval that allows for the drift
    between them, and a warning if they disagree. `drift` is what the policy assumes."""
    if not trial.good or trial.metrics.get("processes", 1) < 2 or not trial.samples:
        return trial
    earlier = [one for one in store.history(trial.id, MOST) if BESIDE_BUILDS not in one.conditions]
    looks = [look for found in earlier if (look := look_of(found))]
    if not looks:
        return trial
    warnings = (*trial.warnings, *disagreement(trial, earlier))
    now = look_of(trial)
    clock = str(trial.conditions.get("clock", "cpu"))
    seconds = seconds_of(looked(trial.conditions))
    seen = [*looks, *([now] if now else [])]
    widened = drift_metrics(trial.samples, clock, drift, seen, seconds)
    return replace(trial, metrics={**trial.metrics, **widened}, warnings=warnings)


def disagreement(trial: Trial, earlier: Sequence[Trial]) -> tuple[str, ...]:
    """A warning if intervals of earlier attempts exclude this one's, newest first."""
    others = [found for found in earlier if excludes(found, trial)]
    if not others:
        return ()
    last = others[0]
    number = (
        f"{len(others)} of {len(earlier)} stored attempts"
        if len(earlier) > 1
        else ("the stored attempt")
    )
    return (
        f"{number} of this trial disagree{'' if len(earlier) > 1 else 's'}: "
        f"{TIME.with_interval(last.metrics)} on {last.created[:16].replace('T', ' ')}, now "
        f"{TIME.with_interval(trial.metrics)}: the machine is not what it was, see "
        f"`kernloom results stability id={trial.id[:12]}`",
    )
