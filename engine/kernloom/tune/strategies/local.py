"""Local search: climb from the best of some random points to better neighbours, and start again at
the top."""

from __future__ import annotations

from collections import deque

from kernloom.tune.indexed import IndexedStrategy
from kernloom.tune.strategy import Search


class LocalSearch(IndexedStrategy):
    name = "local"
    about = "moves to the first better neighbour; restarts at random where there is none"

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._value: float | None = None
        self._waiting: deque[int] = deque()
        good = self.good_results()
        if good:
            self._move(min(good, key=lambda index: good[index]))

    def propose(self) -> int | None:
        if self.starting:
            return self.random_point()
        while self._waiting:
            if (index := self._waiting.popleft()) not in self.asked:
                return index
        # The top is reached: the next point is another start, wherever it leads.
        self._value = None
        return self.random_point()

    def learn(self, index: int, value: float | None) -> None:
        if value is not None and (self._value is None or value < self._value):
            self._move(index)

    def _move(self, index: int) -> None:
        self._value = self.results[index]
        near = self.neighbours(index, adjacent=True)
        known = set(near)
        far = [other for other in self.neighbours(index) if other not in known]
        self._waiting = deque([*near, *far])
