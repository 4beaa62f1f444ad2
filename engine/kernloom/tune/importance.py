"""How much each parameter matters: the share of the variation that its values explain."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.tune.study import Evaluated


@dataclass(frozen=True)
class Importance:
    """The effect of one parameter alone."""

    key: str
    share: float
    """Share of the variance of the logarithm of the cost, corrected for chance."""
    best: Any
    """The value of the best point."""
    spread: float
    """Mean cost of the worst value over that of the best one."""


def importances(evaluated: Sequence[Evaluated]) -> list[Importance]:
    """The parameters of the good points, the most important one first."""
    good = [(one.point, one.costs[0]) for one in evaluated if one.costs is not None]
    if len(good) < 3:
        return []
    logs = [_log(cost) for _, cost in good]
    best = min(good, key=lambda pair: pair[1])[0]
    found = []
    for key in good[0][0]:
        groups: dict[Hashable, list[float]] = {}
        for (point, _), value in zip(good, logs, strict=True):
            groups.setdefault(repr(point[key]), []).append(value)
        if len(groups) > 1:
            means = [math.fsum(group) / len(group) for group in groups.values()]
            spread = math.exp(min(max(means) - min(means), 700.0))
            found.append(Importance(key, _explained(list(groups.values())), best[key], spread))
    return sorted(found, key=lambda one: -one.share)


def _log(cost: float) -> float:
    return math.copysign(math.log1p(abs(cost)), cost)


def _explained(groups: Sequence[Sequence[float]]) -> float:
    """Omega squared of a one-way analysis of variance."""
    values = [value for group in groups for value in group]
    mean = math.fsum(values) / len(values)
    total = math.fsum((value - mean) ** 2 for value in values)
    between = math.fsum(
        len(group) * (math.fsum(group) / len(group) - mean) ** 2 for group in groups
    )
    free = len(values) - len(groups)
    if total <= 0 or free <= 0:
        return 0.0
    error = (total - between) / free
    return max(0.0, (between - (len(groups) - 1) * error) / (total + error))
