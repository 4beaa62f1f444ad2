"""One value for several objectives: strategies minimise a single number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle

Weights = tuple[float, ...]


class Scalars:
    """The value of a point by the weights of the current batch.

    With several objectives the weights change from batch to batch: all of them alike, then mostly
    one after the other, so that the search covers the whole Pareto front.
    """

    def __init__(self, objectives: int) -> None:
        self.several = objectives > 1
        self._turns: Iterator[Weights] = cycle(_weights(objectives))
        self._weights = next(self._turns)
        self._begun = False

    def next(self) -> None:
        """Use the weights of the next batch."""
        if self._begun:
            self._weights = next(self._turns)
        self._begun = True

    def value(self, costs: Sequence[float] | None) -> float | None:
        """The value that strategies minimise: a cost, or a weighted sum of scaled ones."""
        if costs is None:
            return None
        if not self.several:
            return costs[0]
        return sum(w * _scaled(cost) for w, cost in zip(self._weights, costs, strict=True))


def _scaled(cost: float) -> float:
    """The logarithm of a cost, so that a weighted sum weighs ratios; signed, for maximised ones."""
    return math.copysign(math.log1p(abs(cost)), cost)


def _weights(objectives: int) -> list[Weights]:
    alike = tuple([1 / objectives] * objectives)
    if objectives == 1:
        return [alike]
    rest = 0.1 / (objectives - 1)
    mostly = [
        tuple(0.9 if number == main else rest for number in range(objectives))
        for main in range(objectives)
    ]
    return [alike, *mostly]
