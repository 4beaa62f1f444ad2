"""A strategy on indices in the product of all axes: what the shipped strategies have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

import numpy

from kernloom.base.errors import UsageError
from kernloom.tune.pool import shuffled_indices
from kernloom.tune.strategy import Point, Search, Strategy

_STARTS = 12
"""Random points before a search that moves from point to point begins at the best of them."""
_SHARE_OF_STARTS = 5
"""At most the budget divided by this."""


class IndexedStrategy(Strategy):
    """Keeps the points asked and told by their index in the product of all axes."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.space = search.space
        self.generator = numpy.random.default_rng(search.seed)
        self.asked: set[int] = set()
        """Points asked or known."""
        self.results: dict[int, float | None] = {}
        self._first = deque(index for point in search.first if (index := self._index(point)) >= 0)
        self._random = shuffled_indices(search.space, search.seed)
        for point, value in search.known:
            if (index := self._index(point)) >= 0:
                self.asked.add(index)
                self.results[index] = value

    def ask(self, count: int) -> list[Point]:
        points: list[Point] = []
        while len(points) < count and (index := self._next()) is not None:
            self.asked.add(index)
            self.asking(index)
            points.append(self.space.point_at(index))
        return points

    def tell(self, point: Point, value: float | None) -> None:
        index = self.space.index(point)
        self.asked.add(index)
        self.results[index] = value
        self.learn(index, value)

    @abstractmethod
    def propose(self) -> int | None:
        """The next point, not in `asked`; None: no point is left."""

    def asking(self, index: int) -> None:
        """A point is about to be asked."""

    def learn(self, index: int, value: float | None) -> None:
        """A result arrived; it is in `results`."""

    @property
    def starting(self) -> bool:
        """Whether the search has yet to begin."""
        most = (self.search.budget or _STARTS * _SHARE_OF_STARTS) // _SHARE_OF_STARTS
        return len(self.asked) < min(_STARTS, most)

    def random_point(self) -> int | None:
        """A random point that was not asked; None: no point is left."""
        return next((index for index in self._random if index not in self.asked), None)

    def neighbours(self, index: int, *, adjacent: bool = False) -> list[int]:
        """The valid points that differ on one axis, in random order."""
        lines = self.space.neighbour_ranks(self.space.ranks_at(index), adjacent=adjacent)
        return [self.space.index_at(line) for line in self.generator.permutation(lines).tolist()]

    def good_results(self) -> dict[int, float]:
        """The points that did not fail, with their values."""
        return {index: value for index, value in self.results.items() if value is not None}

    def _next(self) -> int | None:
        while self._first:
            if (index := self._first.popleft()) not in self.asked:
                return index
        return self.propose()

    def _index(self, point: Point) -> int:
        """The index of a valid point, else -1."""
        try:
            return self.space.index(point) if self.space.contains(point) else -1
        except UsageError:
            return -1
