"""The cost of each round of a trial, which tells how certain the differences of trials are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernloom.base.gauges import RATES, ROOF_FRACTION, TIME
from kernloom.measure.placement import transfer_metrics
from kernloom.measure.statistics import median, times_of
from kernloom.measure.trial import Samples, Trial
from kernloom.tune.objective import Objective

_INVERSE = (*(rate.name for rate in RATES), ROOF_FRACTION.name)
"""Metrics that are a constant divided by the time."""


def costs_by_round(
    objective: Objective, trial: Trial, samples: Sequence[Samples]
) -> tuple[float, ...]:
    """The cost in each round; empty if a metric of the objective has no value for each round."""
    rounds = list(_metrics_by_round(trial, samples))
    names = objective.names(trial.metrics)
    if not rounds or not names & rounds[0].keys():
        return ()
    if not all(name in rounds[0] or objective.is_constant(name, trial.metrics) for name in names):
        return ()
    found = [objective.cost_of({**trial.metrics, **one}) for one in rounds]
    costs = tuple(cost for cost in found if cost is not None)
    return costs if len(costs) == len(found) else ()


def log_gains(best: Sequence[float], other: Sequence[float]) -> list[float]:
    """The logarithm of how many times better the other is, round by round; empty if the costs have
    no ratio, because they are zero or of different signs."""
    pairs = list(zip(best, other, strict=False))
    if all(a > 0 and b > 0 for a, b in pairs):
        return [math.log(a / b) for a, b in pairs]
    if all(a < 0 and b < 0 for a, b in pairs):
        return [math.log(b / a) for a, b in pairs]
    return []


def _metrics_by_round(trial: Trial, samples: Sequence[Samples]) -> Iterator[Mapping[str, Any]]:
    """The metrics of each process that its samples tell."""
    clock = str(trial.conditions.get("clock", "cpu"))
    whole = trial.metrics.get(TIME.name)
    for process in samples:
        found: dict[str, Any] = {name: median(v) for name, v in process.readings.items()}
        if times := times_of(process, clock):
            time = median(times)
            found |= {TIME.name: time, "min_ns": min(times), "wall_ns": median(process.wall_ns)}
            if process.cpu_ns:
                found["cpu_ns"] = median(process.cpu_ns)
            if whole and time:
                inverse = {n: trial.metrics[n] for n in _INVERSE if n in trial.metrics}
                found |= {name: value * whole / time for name, value in inverse.items()}
            if process.transfer_ns:
                found |= transfer_metrics([process], 0)
        found.pop("transfer_bytes", None)
        yield found
