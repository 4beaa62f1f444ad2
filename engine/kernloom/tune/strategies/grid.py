"""Grid search: the points in their order, evenly spaced if the budget is smaller than the space."""

from __future__ import annotations

from collections.abc import Iterator

from kernloom.tune.indexed import IndexedStrategy
from kernloom.tune.pool import all_ranks
from kernloom.tune.strategy import Search


class GridSearch(IndexedStrategy):
    name = "grid"
    about = "all points in order; evenly spaced ones first if the budget is smaller than the space"

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._order = self._points()

    def propose(self) -> int | None:
        return next((index for index in self._order if index not in self.asked), None)

    def _points(self) -> Iterator[int]:
        budget = self.search.budget
        if budget is not None:
            tables = self.space.tables
            total = tables.total if tables else 0
            if tables and budget < total:
                numbers = [number * total // budget for number in range(budget)]
                for line in tables.ranks(numbers).tolist():
                    yield self.space.index_at(line)
            elif not tables and (ranks := all_ranks(self.space)) is not None:
                step = max(1, len(ranks) // budget)
                for line in ranks[::step].tolist():
                    yield self.space.index_at(line)
        for point in self.space:
            yield self.space.index(point)
