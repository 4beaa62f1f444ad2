"""Ranks the trials of a sweep that did the same work, relative to the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from kernloom.base.files import canonical_json
from kernloom.base.gauges import VIRTUAL_TIME, Gauge, ranking_gauge
from kernloom.base.lookup import MISSING, lookup
from kernloom.base.units import count
from kernloom.config.schema import SANITIZED
from kernloom.measure.drift import ROUNDS_HIGH, ROUNDS_LOW, looked, same_rounds
from kernloom.measure.trial import Trial

BETWEEN_PROCESSES = 0.1
"""Plausible difference between two processes of the same kernel."""
WIDEST = 10
"""Ratio of an interval's bounds from which a time is not known well enough to be ranked."""
FAULTS = "faults"
"""Condition of a trial: the faults that were injected, as text."""
WITH_SANITIZER = "with a sanitizer"
WITH_FAULTS = "with injected faults"
NOT_RANKED = {
    WITH_SANITIZER: "such times mean nothing",
    WITH_FAULTS: "such times are not those of the target as it is",
}
"""Trials whose times are not compared with those of others, and why."""
WORK_FIELDS = ("sizes", "dtype", "tensors")
"""Fields that must be equal for trials to be ranked together."""


@dataclass(frozen=True)
class Standing:
    """A trial's position relative to the best of those that did the same work."""

    ratio: float
    """How many times better the best is; for times, how many times longer this trial takes."""
    best: bool
    certain: bool
    """Whether the difference exceeds their intervals and the policy's floor."""


@dataclass(frozen=True)
class Objective:
    """The value that an optimiser minimises: the gauge that a trial is ranked by."""

    metric: str
    value: float
    """Infinite for a point that is wrong or cannot be run; negative for a gauge where more is
    better."""
    work: str
    """Only objectives with the same text are comparable; '' where the value is infinite."""


FAILED = Objective("", math.inf, "")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A trial's ranking value, and what is needed to decide whether it differs from another."""

    id: str
    gauge: Gauge
    value: float
    floor: float | None
    """The least difference that counts under its policy."""
    samples: int | None
    processes: int | None
    low: float | None
    high: float | None
    """The bounds of its interval."""
    near: tuple[float, float] | None = None
    """The bounds within its rounds, for comparison with trials of the same rounds."""
    looked: tuple[datetime, datetime] | None = None


def objective(trial: Trial) -> Objective:
    gauge, value = _measured(trial)
    if gauge is None or not trial.good or value <= 0:
        return FAILED
    return Objective(gauge.name, gauge.cost(value), _group(trial, gauge))


def standings(trials: Iterable[Trial]) -> dict[str, Standing]:
    """Trial id -> its standing, for trials that have others to be compared with."""
    found: dict[str, Standing] = {}
    for best, *others in ranked(trial for trial in trials if not not_ranked(trial)):
        for other in others:
            ratio = best.gauge.gain(other.value, best.value)
            found[other.id] = Standing(ratio, ratio == 1, _clearly_differ(best, other))
        if others:
            found[best.id] = Standing(1.0, best=True, certain=_clearly_differ(best, best))
    return found


def ranked(trials: Iterable[Trial]) -> list[list[Ranked]]:
    """The good trials, best first, grouped by the work they did."""
    groups: dict[bytes, dict[str, Ranked]] = {}
    for trial in trials:
        gauge, value = _measured(trial)
        if gauge and trial.good and value > 0 and not _is_vague(trial, gauge):
            work = sha256(_group(trial, gauge).encode()).digest()
            groups.setdefault(work, {})[trial.id] = _ranked(trial, gauge, value)
    return [
        sorted(members.values(), key=lambda found: found.gauge.cost(found.value))
        for members in groups.values()
    ]


def _is_vague(trial: Trial, gauge: Gauge) -> bool:
    low, high = trial.metrics.get(gauge.low), trial.metrics.get(gauge.high)
    return low is not None and high is not None and high > WIDEST * max(low, 0)


def _ranked(trial: Trial, gauge: Gauge, value: float) -> Ranked:
    floor = lookup(trial.config, ("measure", "floor"))
    metrics = trial.metrics
    return Ranked(
        trial.id,
        gauge,
        value,
        None if floor is MISSING else floor,
        metrics.get("samples"),
        metrics.get("processes"),
        metrics.get(gauge.low),
        metrics.get(gauge.high),
        (metrics[ROUNDS_LOW], metrics[ROUNDS_HIGH]) if ROUNDS_LOW in metrics else None,
        looked(trial.conditions),
    )


def changes_work(key: str) -> bool:
    """Whether trials that differ in a config key do different work, or do it elsewhere."""
    inside = [f"workload.{name}" for name in WORK_FIELDS]
    return key in ("workload", "case", "target") or any(
        key == part or key.startswith(f"{part}.") for part in inside
    )


def is_sanitized(trial: Trial) -> bool:
    """Whether a trial ran with a sanitizer: its times are not comparable with others, unless they
    are virtual."""
    gauge = ranking_gauge(trial.metrics)
    if gauge is not None and gauge.name == VIRTUAL_TIME.name:
        return False
    variant = lookup(trial.config, ("target", "variant"))
    sanitized = lookup(trial.config, ("target", "sanitized"))
    return variant in (SANITIZED if sanitized is MISSING else sanitized)


def not_ranked(trial: Trial) -> str:
    """Which of NOT_RANKED a trial is; empty for one that is ranked."""
    if trial.conditions.get(FAULTS):
        return WITH_FAULTS
    return WITH_SANITIZER if is_sanitized(trial) else ""


def not_ranked_remark(reason: str, number: int) -> str:
    """The remark that so many trials are not ranked."""
    trials = f"{count(number, 'trial')} {reason} {'is' if number == 1 else 'are'}"
    return f"{trials} not ranked: {NOT_RANKED[reason]}"


def metric_of(trial: Trial) -> str:
    """The metric that a trial is ranked by; empty if it has none."""
    gauge = ranking_gauge(trial.metrics)
    return gauge.name if gauge else ""


def _measured(trial: Trial) -> tuple[Gauge | None, float]:
    """The gauge that a trial is ranked by, and its value."""
    gauge = ranking_gauge(trial.metrics)
    return gauge, float(trial.metrics[gauge.name]) if gauge else 0.0


def _group(trial: Trial, gauge: Gauge) -> str:
    """Trials with the same text did the same work in the same place, with the same gauge."""
    workload = trial.config.get("workload")
    work = [workload.get(name) for name in WORK_FIELDS] if isinstance(workload, Mapping) else []
    place = [trial.target, *(["sanitized"] if is_sanitized(trial) else [])]
    if faults := trial.conditions.get(FAULTS):
        place.append(faults)
    return canonical_json([trial.workload, trial.case, *place, gauge.name, work])


def _clearly_differ(best: Ranked, other: Ranked) -> bool:
    if other.gauge.exact:
        return True
    low, high = sorted((best, other), key=lambda found: found.value)
    if other.floor is not None and high.value < low.value * (1 + other.floor):
        return False
    if 1 in (low.samples, high.samples):
        return False  # a single sample has no interval
    if 1 in (low.processes, high.processes):
        # The interval of one process does not cover the variation between processes.
        return high.value > low.value * (1 + BETWEEN_PROCESSES)
    if low.near and high.near and same_rounds(low.looked, high.looked):
        # What drifted between episodes affected both alike.
        return low.near[1] < high.near[0]
    return low.high is not None and high.low is not None and low.high < high.low
