"""Random search: every valid point is equally likely."""

from __future__ import annotations

from kernloom.tune.indexed import IndexedStrategy
from kernloom.tune.pool import shuffled_indices
from kernloom.tune.strategy import Search


class RandomSearch(IndexedStrategy):
    name = "random"
    about = "valid points in random order; the baseline of every other strategy"

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._order = shuffled_indices(search.space, search.seed)

    def propose(self) -> int | None:
        return next((index for index in self._order if index not in self.asked), None)
