"""Simulated annealing: worse neighbours are accepted less and less often."""

from __future__ import annotations

import math

from kernloom.tune.indexed import IndexedStrategy
from kernloom.tune.strategy import Search

_HOT, _COLD = 0.1, 0.001
"""First and last temperature: the relative loss that is accepted with probability 1/e."""
_USUAL_BUDGET = 200
_MAX_MOVES = 100
"""Moves among known points before a restart at random."""


class Annealing(IndexedStrategy):
    name = "annealing"
    about = "random moves to neighbours; worse ones are accepted less often as the budget is spent"

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._budget = max(2, search.budget or _USUAL_BUDGET)
        self._told = 0
        self._current: int | None = None
        self._lists: dict[int, list[int]] = {}
        self._begin()

    def propose(self) -> int | None:
        if self.starting:
            return self.random_point()
        for _ in range(_MAX_MOVES):
            if self._current is None:
                break
            near = self._near(self._current)
            if not near:
                break
            chosen = near[int(self.generator.integers(len(near)))]
            if chosen not in self.asked:
                return chosen
            # A known neighbour costs nothing: move there, or not.
            self._consider(chosen)
        index = self._unknown_neighbour()
        return self.random_point() if index is None else index

    def _unknown_neighbour(self) -> int | None:
        near = [] if self._current is None else self._near(self._current)
        unknown = [index for index in near if index not in self.asked]
        return unknown[int(self.generator.integers(len(unknown)))] if unknown else None

    def _near(self, index: int) -> list[int]:
        """The neighbours of a point. Late in a search they are asked for time and again."""
        if index not in self._lists:
            self._lists[index] = self.neighbours(index)
        return self._lists[index]

    def learn(self, index: int, value: float | None) -> None:
        self._told += 1
        if self.starting:
            self._begin()
        else:
            self._consider(index)

    def _begin(self) -> None:
        """Go to the best point so far."""
        good = self.good_results()
        self._current = min(good, key=lambda index: good[index]) if good else None

    def _consider(self, index: int) -> None:
        value = self.results.get(index)
        if value is None:
            return
        now = None if self._current is None else self.results.get(self._current)
        if now is None:
            self._current = index
            return
        loss = (value - now) / max(abs(now), 1e-300)
        if loss <= 0 or self.generator.random() < math.exp(-loss / self._temperature()):
            self._current = index

    def _temperature(self) -> float:
        spent = min(1.0, self._told / self._budget)
        return float(_HOT * (_COLD / _HOT) ** spent)
