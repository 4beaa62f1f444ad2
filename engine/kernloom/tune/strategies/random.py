"""Random search: every valid point is equally likely."""

from __future__ import annotations

from kernloom.tune.indexed import IndexedStrategy


class RandomSearch(IndexedStrategy):
    name = "random"
    about = "valid points in random order; the baseline of every other strategy"

    def propose(self) -> int | None:
        return self.random_point()
