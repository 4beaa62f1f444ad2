"""How much each parameter matters: the share of the variation that its values explain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.tune.study import Evaluated


@dataclass(frozen=True)
class Importance:
    """The effect of one parameter alone."""

    key: str
    share: float
    """Share of the variance of the log cost that no earlier parameter explains, corrected for
    chance."""
    best: Any
    """The value of the best point."""
    spread: float
    """Mean cost of the worst value over that of the best one."""


def importances(evaluated: Sequence[Evaluated]) -> list[Importance]:
    """The parameters of the good points, the most important one first."""
    good = [(one.point, one.costs[0]) for one in evaluated if one.costs is not None]
    if len(good) < 3:
        return []
    costs = [_log(cost) for _, cost in good]
    best = min(good, key=lambda pair: pair[1])[0]
    values = {key: [repr(point[key]) for point, _ in good] for key in good[0][0]}
    left = {key for key, column in values.items() if len(set(column)) > 1}
    mean = math.fsum(costs) / len(costs)
    residuals = [cost - mean for cost in costs]
    total = math.fsum(value**2 for value in residuals)
    found: list[Importance] = []
    while left and total > 0:
        # What one parameter explains is taken away before the next one is looked at: in few points
        # parameters vary together.
        shares = {key: _explained(_groups(values[key], residuals), total) for key in sorted(left)}
        key = max(shares, key=lambda one: shares[one])
        if shares[key] <= 0:
            break
        left.remove(key)
        means = {v: math.fsum(g) / len(g) for v, g in _groups(values[key], residuals).items()}
        spread = math.exp(min(max(means.values()) - min(means.values()), 700.0))
        found.append(Importance(key, shares[key], best[key], spread))
        pairs = zip(residuals, values[key], strict=True)
        residuals = [value - means[group] for value, group in pairs]
    return found


def _groups(column: Sequence[str], residuals: Sequence[float]) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for group, value in zip(column, residuals, strict=True):
        groups.setdefault(group, []).append(value)
    return groups


def _log(cost: float) -> float:
    return math.copysign(math.log1p(abs(cost)), cost)


def _explained(groups: Mapping[str, Sequence[float]], total: float) -> float:
    """The share of a variation that groups explain, less what chance would (omega squared)."""
    values = [value for group in groups.values() for value in group]
    between = math.fsum(math.fsum(group) ** 2 / len(group) for group in groups.values())
    free = len(values) - len(groups)
    if free <= 0:
        return 0.0
    within = math.fsum(value**2 for value in values) - between
    return max(0.0, (between - (len(groups) - 1) * max(0.0, within) / free) / total)
