"""Bayesian optimisation: a Gaussian process predicts every point, and the point with the largest
expected improvement is next."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy

from kernloom.tune.candidates import Candidates
from kernloom.tune.gaussian_process import GaussianProcess
from kernloom.tune.indexed import IndexedStrategy
from kernloom.tune.strategy import Search

if TYPE_CHECKING:
    from kernloom.space.axes import Array

CAPACITY = 250
"""Points in the model; a suggestion takes time in proportion."""
STARTS = 12
"""Points before the first prediction."""
_GROWTH = 1.3
"""The rates of the model are fitted again when the points have grown by this factor."""
_LEAST_GROWTH = 6
_CLIP = 90
"""Percentile at which logarithms of values are clipped; failed points count as the clip."""
_LEAST_GAIN = 0.01
"""Improvement that does not count, in standard deviations of the targets."""
_REFRESH = 20
"""A selection of a large space is renewed after so many points."""
_NEAR = 8
"""Best points whose neighbours are in a selection."""


class SurrogateSearch(IndexedStrategy):
    name = "surrogate"
    about = "a Gaussian process; the point with the largest expected improvement is next"

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.candidates = Candidates(search.space, search.seed)
        self.model = GaussianProcess(self.candidates.features)
        self.members: list[int] = []
        """Points in the model, in the order of its rows."""
        self.open = numpy.ones(self.candidates.size, dtype=bool)
        """Candidates that were not asked."""
        self._within: set[int] = set()
        """The members."""
        self._unseen: list[int] = []
        """Points asked or told that the model may not know."""
        self.fitted = 0
        """Number of results at the last fit; 0: none yet."""
        self._conditioned = 0
        self._starts = deque(self.first_points())

    def first_points(self) -> list[int]:
        """Points to start with, beside those that the search names."""
        wanted = max(0, STARTS - len(self.search.first) - len(self.good_results()))
        rows = self.generator.permutation(self.candidates.size)[:wanted]
        return [self.candidates.indices[row] for row in rows.tolist()]

    def asking(self, index: int) -> None:
        self._unseen.append(index)

    def learn(self, index: int, value: float | None) -> None:
        if index not in self._within:
            self._unseen.append(index)

    def propose(self) -> int | None:
        while self._starts:
            if (index := self._starts.popleft()) not in self.asked:
                return index
        if len(self.good_results()) < 2:
            return self.random_point()
        self._update()
        chosen = self.choose()
        if chosen is None and not self.candidates.complete:
            self._condition()
            chosen = self.choose()
        return self.random_point() if chosen is None else chosen

    def choose(self) -> int | None:
        """The next point by the model; None: no candidate is left."""
        return self.best_open(self.expected_improvement(_LEAST_GAIN))

    def best_open(self, merit: Array) -> int | None:
        """The open candidate with the largest merit."""
        if not self.open.any():
            return None
        row = int(numpy.argmax(numpy.where(self.open, merit, -numpy.inf)))
        return self.candidates.indices[row]

    def expected_improvement(self, least_gain: float) -> Array:
        """The expected improvement at each candidate, beyond a least gain."""
        mean, deviation, best = self.prediction()
        z = (best - least_gain - mean) / deviation
        # The normal distribution function, by tanh.
        below = 0.5 * (1 + numpy.tanh(0.7978845608 * (z + 0.044715 * z * z * z)))
        improvement: Array = deviation * (z * below + 0.39894228 * numpy.exp(-z * z / 2))
        return improvement

    def prediction(self) -> tuple[Array, Array, float]:
        """Mean and standard deviation at each candidate, and the least target."""
        targets = self.targets(self.members)
        mean, scale = self.model.mean(targets)
        return mean, self.model.deviation(scale), float(targets.min())

    def targets(self, members: list[int]) -> Array:
        """What the model learns: standardised, lower is better. A point without a result yet counts
        as a mean one, so that the points of a batch differ."""
        values = [self.results.get(index, math.nan) for index in members]
        waiting = numpy.array([value is not None and math.isnan(value) for value in values])
        failed = numpy.array([value is None for value in values])
        good = ~waiting & ~failed
        known = numpy.array([value for value in values if value is not None], dtype=float)
        targets = numpy.zeros(len(values))
        if not good.any():
            return targets
        targets[good] = self.scaled(known[~numpy.isnan(known)])
        targets[failed] = targets[good].max()
        told = ~waiting
        targets[told] -= targets[told].mean()
        targets[told] /= max(float(targets[told].std()), 1e-9)
        return targets

    def scaled(self, values: Array) -> Array:
        """Values on the scale of the model."""
        logs = logarithms(values)
        clipped: Array = numpy.minimum(logs, numpy.percentile(logs, _CLIP))
        return clipped

    def _update(self) -> None:
        """Bring the model up to date with what was asked and told."""
        told = len(self.results)
        if not self.fitted or (
            told >= max(self.fitted * _GROWTH, self.fitted + _LEAST_GROWTH)
            and self.fitted < CAPACITY
        ):
            self.fit()
        elif not self.candidates.complete and len(self.asked) >= self._conditioned + _REFRESH:
            self._condition()
        for index in self._unseen:
            if not self.model.is_full and index not in self._within:
                self.model.append(self.candidates.encoded([index])[0])
                self.members.append(index)
                self._within.add(index)
        self.open[self.candidates.rows(self._unseen)] = False
        self._unseen.clear()

    def fit(self) -> None:
        """Choose the points and the rates of the model anew."""
        members = self._selected()
        self.model.fit(self.candidates.encoded(members), self.targets(members))
        self.fitted = len(self.results)
        self._condition(members)

    def _condition(self, members: list[int] | None = None) -> None:
        self.members = members or self._selected()
        good = self.good_results()
        near = sorted(good, key=lambda index: good[index])[:_NEAR]
        self.candidates.select(near)
        self._conditioned = len(self.asked)
        self._within = set(self.members)
        self.open = numpy.ones(self.candidates.size, dtype=bool)
        self.open[self.candidates.rows(self.asked)] = False
        encoded = self.candidates.encoded(self.members)
        room = max(CAPACITY, len(self.members)) + _REFRESH
        self.model.condition(encoded, self.candidates.encoding, room)

    def _selected(self) -> list[int]:
        """The points for the model: all, or the best half and some others if there are too many."""
        everything = list(self.results)
        if len(everything) <= CAPACITY:
            return everything
        good = self.good_results()
        best = sorted(good, key=lambda index: good[index])[: CAPACITY // 2]
        chosen = set(best)
        others = [index for index in everything if index not in chosen]
        drawn = self.generator.permutation(len(others))[: CAPACITY - len(best)]
        return [*best, *(others[number] for number in drawn.tolist())]


def logarithms(values: Array) -> Array:
    """Logarithms, if all values are positive; otherwise the values. Times vary by factors."""
    logs: Array = numpy.log(values) if (values > 0).all() else values
    return logs
