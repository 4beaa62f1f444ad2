"""How the trials of a sweep that did the same work compare with the best of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernloom.files import canonical_json
from kernloom.measure.trial import Trial
from kernloom.store.keys import MISSING, lookup

RANKED_BY = ("virtual_ns", "instructions", "median_ns")
"""The first that a trial has; those before the last are exact."""
BETWEEN_PROCESSES = 0.1
"""What two processes of the same kernel may well differ by."""
WORK = ("sizes", "dtype", "tensors")
"""What of a workload decides how much there is to do, and from where to where."""


@dataclass(frozen=True)
class Standing:
    """A trial beside the best of those that did the same work."""

    ratio: float
    """How many times as long it takes."""
    best: bool
    certain: bool
    """Whether the difference is more than their intervals and the policy's floor allow for."""


@dataclass(frozen=True)
class Objective:
    """What an optimiser minimises: the metric that a trial is ranked by."""

    metric: str
    value: float
    """Infinite for a point that cannot be carried out or is wrong."""
    work: str
    """Only objectives with the same text can be compared; '' where the value is infinite."""


FAILED = Objective("", math.inf, "")


def objective(trial: Trial) -> Objective:
    if not trial.good or _rank(trial) <= 0:
        return FAILED
    return Objective(_metric(trial), _rank(trial), _group(trial))


def standings(trials: Sequence[Trial]) -> dict[str, Standing]:
    """By the trial's id, those that have something to be compared with."""
    found: dict[str, Standing] = {}
    for members in _groups(trials):
        if len(members) == 1:
            continue
        best = min(members.values(), key=_rank)
        for id, member in members.items():
            ratio = _rank(member) / _rank(best)
            found[id] = Standing(ratio, ratio == 1, _apart(best, member))
    return found


def ranked(trials: Sequence[Trial]) -> list[list[Trial]]:
    """The good ones, best first, those that did the same work together."""
    return [sorted(members.values(), key=_rank) for members in _groups(trials)]


def _groups(trials: Sequence[Trial]) -> list[dict[str, Trial]]:
    groups: dict[str, dict[str, Trial]] = {}
    for trial in trials:
        if trial.good and _rank(trial) > 0:
            groups.setdefault(_group(trial), {})[trial.id] = trial
    return list(groups.values())


def _metric(trial: Trial) -> str:
    return next((name for name in RANKED_BY if trial.metrics.get(name) is not None), "")


def _rank(trial: Trial) -> float:
    return float(trial.metrics.get(_metric(trial), 0))


def _group(trial: Trial) -> str:
    """Trials with the same text did the same work in the same place, and count the same thing."""
    workload = trial.config.get("workload")
    work = [workload.get(name) for name in WORK] if isinstance(workload, Mapping) else []
    return canonical_json([trial.workload, trial.case, trial.target, _metric(trial), work])


def _apart(fast: Trial, slow: Trial) -> bool:
    if _metric(slow) != RANKED_BY[-1]:
        return True
    floor = lookup(slow.config, ("measure", "floor"))
    if floor is not MISSING and _rank(slow) < _rank(fast) * (1 + floor):
        return False
    if 1 in (fast.metrics.get("samples"), slow.metrics.get("samples")):
        return False  # A single sample has no interval.
    if 1 in (fast.metrics.get("processes"), slow.metrics.get("processes")):
        # The interval of one process knows nothing of how the next one would differ.
        return _rank(slow) > _rank(fast) * (1 + BETWEEN_PROCESSES)
    high, low = fast.metrics.get("ci_high_ns"), slow.metrics.get("ci_low_ns")
    return high is not None and low is not None and bool(high < low)
