"""How the trials of a sweep that did the same work compare with the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from kernloom.base.files import canonical_json
from kernloom.base.gauges import Gauge, ranking_gauge
from kernloom.base.lookup import MISSING, lookup
from kernloom.config.schema import SANITIZED
from kernloom.measure.trial import Trial

BETWEEN_PROCESSES = 0.1
"""What two processes of the same kernel may well differ by."""
WORK = ("sizes", "dtype", "tensors")
"""What of a workload decides how much there is to do, and from where to where."""


@dataclass(frozen=True)
class Standing:
    """A trial beside the best of those that did the same work."""

    ratio: float
    """How many times as good the best is; of times, how many times as long it takes."""
    best: bool
    certain: bool
    """Whether the difference is more than their intervals and the policy's floor allow for."""


@dataclass(frozen=True)
class Objective:
    """What an optimiser minimises: the gauge that a trial is ranked by."""

    metric: str
    value: float
    """Infinite for a point that cannot be carried out or is wrong; negative for a gauge of which
    more is better."""
    work: str
    """Only objectives with the same text can be compared; '' where the value is infinite."""


FAILED = Objective("", math.inf, "")


@dataclass(frozen=True, slots=True)
class Ranked:
    """What a trial is ranked by, and what it takes to tell whether it differs from another."""

    id: str
    gauge: Gauge
    value: float
    floor: float | None
    """The least difference that its policy takes for one."""
    samples: int | None
    processes: int | None
    low: float | None
    high: float | None
    """The ends of its interval."""


def objective(trial: Trial) -> Objective:
    gauge, value = _measured(trial)
    if gauge is None or not trial.good or value <= 0:
        return FAILED
    return Objective(gauge.name, gauge.cost(value), _group(trial, gauge))


def standings(trials: Iterable[Trial]) -> dict[str, Standing]:
    """By the trial's id, those that have something to be compared with."""
    found: dict[str, Standing] = {}
    for best, *others in ranked(trial for trial in trials if not is_sanitized(trial)):
        for other in others:
            ratio = best.gauge.gain(other.value, best.value)
            found[other.id] = Standing(ratio, ratio == 1, _apart(best, other))
        if others:
            found[best.id] = Standing(1.0, best=True, certain=_apart(best, best))
    return found


def ranked(trials: Iterable[Trial]) -> list[list[Ranked]]:
    """The good ones, best first, those that did the same work together."""
    groups: dict[bytes, dict[str, Ranked]] = {}
    for trial in trials:
        gauge, value = _measured(trial)
        if gauge and trial.good and value > 0:
            work = sha256(_group(trial, gauge).encode()).digest()
            groups.setdefault(work, {})[trial.id] = _ranked(trial, gauge, value)
    return [
        sorted(members.values(), key=lambda found: found.gauge.cost(found.value))
        for members in groups.values()
    ]


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
    )


def decides_work(key: str) -> bool:
    """Whether trials with other values of a config key do other work, or do it elsewhere."""
    inside = [f"workload.{name}" for name in WORK]
    return key in ("workload", "case", "target") or any(
        key == part or key.startswith(f"{part}.") for part in inside
    )


def is_sanitized(trial: Trial) -> bool:
    """Whether a trial ran with a sanitizer: its times mean nothing beside others."""
    variant = lookup(trial.config, ("target", "variant"))
    sanitized = lookup(trial.config, ("target", "sanitized"))
    return variant in (SANITIZED if sanitized is MISSING else sanitized)


def metric_of(trial: Trial) -> str:
    """What a trial is ranked by; nothing, if it has no such metric."""
    gauge = ranking_gauge(trial.metrics)
    return gauge.name if gauge else ""


def _measured(trial: Trial) -> tuple[Gauge | None, float]:
    """What a trial is ranked by, and its value."""
    gauge = ranking_gauge(trial.metrics)
    return gauge, float(trial.metrics[gauge.name]) if gauge else 0.0


def _group(trial: Trial, gauge: Gauge) -> str:
    """Trials with the same text did the same work in the same place, and count the same thing."""
    workload = trial.config.get("workload")
    work = [workload.get(name) for name in WORK] if isinstance(workload, Mapping) else []
    place = [trial.target, *(["sanitized"] if is_sanitized(trial) else [])]
    return canonical_json([trial.workload, trial.case, *place, gauge.name, work])


def _apart(best: Ranked, other: Ranked) -> bool:
    if other.gauge.exact:
        return True
    low, high = sorted((best, other), key=lambda found: found.value)
    if other.floor is not None and high.value < low.value * (1 + other.floor):
        return False
    if 1 in (low.samples, high.samples):
        return False  # A single sample has no interval.
    if 1 in (low.processes, high.processes):
        # The interval of one process knows nothing of how the next one would differ.
        return high.value > low.value * (1 + BETWEEN_PROCESSES)
    return low.high is not None and high.low is not None and low.high < high.low
