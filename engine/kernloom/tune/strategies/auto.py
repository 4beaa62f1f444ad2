"""The default strategy: a Gaussian process that gets restless on plateaus, then local search.

Differences to `surrogate`, and why:

- The first points are spread evenly over all axes: fewer searches start badly.
- A warm search, which starts from points that are good elsewhere, expects of unknown points what a
  few random ones have shown, not what the good ones have; so it stays near them first.
- The expected improvement is multiplied by the probability that a point does not fail.
- A small improvement on a plateau counts as none. The longer there is no real improvement, the
  larger the improvement that is looked for, and so the search leaves the plateau.
- Now and then, and always when the model is full, it tries neighbours of the best points in the
  order of the model. This finds the best corner of a good region in long searches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy

from kernloom.tune.strategies.surrogate import CAPACITY, SurrogateSearch
from kernloom.tune.strategy import Search

if TYPE_CHECKING:
    from kernloom.space.axes import Array

_LEAST_STARTS, _MOST_STARTS = 8, 12
_START_SHARE = 0.1
"""Share of the budget for the first points, within these bounds."""
_WARM_STARTS = 2
"""Further points if the search names several to start with."""
_WARM_POINTS = 30
"""Points after which the expectation of a warm search fades."""
_USUAL_BUDGET = 100
_SEVERAL = 4
_REAL_GAIN = 0.03
"""Relative improvement that ends a plateau."""
_RESTLESSNESS = 0.15
"""Growth of the improvement looked for per point without a real one, in standard deviations."""
_MAX_GAIN = 1.0
_LEAST_GAIN = 0.01
_PATIENCE = 40
"""Points without an improvement after which neighbours of the best points are tried."""
_LOCAL_SHARE = 0.8
_LONG_PATIENCE = 150
"""Points without an improvement after which points that differ on two axes are neighbours too."""

_RENEWAL = 300
"""New results after which a full model is renewed."""


class AutoSearch(SurrogateSearch):
    name = "auto"
    about = "a Gaussian process that leaves plateaus, and local search around the best; the default"

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._best = math.inf
        self._stagnant = 0
        """Points since the last improvement."""
        self._level = math.inf
        self._dull = 0
        """Points since the last real improvement."""
        self._order: Array | None = None
        """Merit of each candidate, when the model is full."""
        for value in self.good_results().values():
            self._judge(value)

    def first_points(self) -> list[int]:
        given = len(self.search.first)
        self._warm = given >= _SEVERAL
        budget = self.search.budget or _USUAL_BUDGET
        starts = min(max(round(_START_SHARE * budget), _LEAST_STARTS), _MOST_STARTS)
        wanted = _WARM_STARTS if self._warm else starts - given
        wanted = max(0, wanted - len(self.good_results()))
        spread = self.candidates.spread(wanted, self.generator)
        self._usual = set(spread)
        """Points that are good or bad by chance."""
        return spread

    def learn(self, index: int, value: float | None) -> None:
        super().learn(index, value)
        self._judge(value)

    def _judge(self, value: float | None) -> None:
        self._stagnant += 1
        self._dull += 1
        if value is None:
            return
        if value < self._best:
            self._best, self._stagnant = value, 0
        if value < self._level - _REAL_GAIN * abs(self._level) or self._level == math.inf:
            self._level, self._dull = value, 0

    def choose(self) -> int | None:
        full = len(self.members) >= CAPACITY
        if full and self._is_stale():
            self.fit()
            self._order = None
        if full or self._stagnant > _PATIENCE:
            if full and self._order is None:
                mean, deviation, _ = self.prediction()
                self._order = 0.5 * deviation - mean
            if self.generator.random() < _LOCAL_SHARE:
                index = self._neighbour()
                if index is not None:
                    return index
            if full and self._order is not None:
                return self.best_open(self._order)
        gain = _LEAST_GAIN + min(_RESTLESSNESS * self._dull, _MAX_GAIN)
        return self.best_open(self.expected_improvement(gain) * self._validity())

    def _is_stale(self) -> bool:
        """Whether a full model leads nowhere any more, and there are many new results."""
        return self._stagnant > _LONG_PATIENCE and len(self.results) >= self.fitted + _RENEWAL

    def targets(self, members: list[int]) -> Array:
        targets = super().targets(members)
        if not self._warm:
            return targets
        usual = [n for n, index in enumerate(members) if index in self._usual]
        if not usual:
            return targets
        share = min(1.0, _WARM_POINTS / len(members))
        return targets - share * max(0.0, float(targets[usual].mean()))

    def _validity(self) -> Array:
        """The probability that each candidate does not fail."""
        works = numpy.array([self.results.get(index, 0.0) is not None for index in self.members])
        if works.all():
            return numpy.ones(self.candidates.size)
        usual = works.mean()
        deviation, _ = self.model.mean(works - usual)
        probability: Array = numpy.clip(usual + deviation, 0.02, 1.0)
        return probability

    def _neighbour(self) -> int | None:
        """The most promising open neighbour of the best points."""
        if self._order is not None:
            merit = self._order
        else:
            mean, deviation, _ = self.prediction()
            merit = 0.5 * deviation - mean
        distance = 1 if self._stagnant < _LONG_PATIENCE else 2
        good = self.good_results()
        elite = sorted(good, key=lambda index: good[index])[: 1 + self._stagnant // _PATIENCE]
        ranks = self.candidates.ranks
        free = [n for n, size in enumerate(self.space.sizes) if size > 1]
        for index in elite:
            line = numpy.array(self.space.ranks_at(index))[free]
            near = ((ranks != line).sum(axis=1) <= distance) & self.open
            if near.any():
                rows = numpy.flatnonzero(near)
                return self.candidates.indices[int(rows[numpy.argmax(merit[rows])])]
        return None
