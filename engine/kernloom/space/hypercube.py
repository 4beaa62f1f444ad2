"""Latin hypercubes: samples that use the values of every axis equally often."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from kernloom.space.space import Space

_STARTS = 5
"""How many designs are drawn and mended for one whose rows are all different and allowed."""
_MAX_SWAPS = 20_000


def design(
    space: Space, wanted: int, generator: random.Random, allowed: Callable[[int], bool]
) -> list[int]:
    """The good rows of the best design: all that are wanted, or fewer if no design was found."""
    best: list[int] = []
    swaps = min(_MAX_SWAPS, 1000 + 20 * wanted * len(space.axes))
    for _ in range(_STARTS):
        mending = _Mending(space, wanted, generator, allowed)
        for _ in range(swaps if mending.bad else 0):
            mending.swap()
            if not mending.bad:
                break
        good = mending.good()
        if len(good) > len(best):
            best = good
        if len(best) == wanted or len(best) * 2 < wanted:
            break
    return best


class _Mending:
    """A design whose rows trade values, which keeps it balanced, until all of them are good."""

    def __init__(
        self,
        space: Space,
        wanted: int,
        generator: random.Random,
        allowed: Callable[[int], bool],
    ) -> None:
        self._space = space
        self._wanted = wanted
        self._random = generator.random
        self._allowed = allowed
        columns = []
        for size in space.sizes:
            places = [self._drawn(size, number) for number in range(wanted)]
            columns.append(shuffled(places, generator))
        self._rows = [list(places) for places in zip(*columns, strict=True)]
        self._indices = [space.index_at(places) for places in self._rows]
        self._used = Counter(self._indices)
        self.bad = [n for n in range(wanted) if self._is_bad(n)]

    def good(self) -> list[int]:
        return [index for index in dict.fromkeys(self._indices) if self._allowed(index)]

    def swap(self) -> None:
        """Let a bad row trade one value with another row, unless that makes more rows bad."""
        at = int(self._random() * len(self.bad))
        row, other = self.bad[at], int(self._random() * self._wanted)
        if not self._is_bad(row):
            self.bad[at] = self.bad[-1]
            self.bad.pop()
            return
        axis = int(self._random() * len(self._space.sizes))
        pair = {row, other}
        were_bad = {n for n in pair if self._is_bad(n)}
        before = {n: self._rows[n] for n in pair}
        mine, its = list(self._rows[row]), list(self._rows[other])
        mine[axis], its[axis] = its[axis], mine[axis]
        self._place(row, self._drawn_again(mine))
        self._place(other, self._drawn_again(its if other != row else mine))
        are_bad = {n for n in pair if self._is_bad(n)}
        if len(are_bad) > len(were_bad):
            for n, places in before.items():
                self._place(n, places)
        else:
            self.bad.extend(are_bad - were_bad)

    def _drawn_again(self, places: list[int]) -> list[int]:
        """Other places of the same stretches."""
        return [
            self._drawn(size, cell(place, size, self._wanted)) if size > self._wanted else place
            for place, size in zip(places, self._space.sizes, strict=True)
        ]

    def _place(self, row: int, places: list[int]) -> None:
        self._used[self._indices[row]] -= 1
        self._rows[row] = places
        self._indices[row] = self._space.index_at(places)
        self._used[self._indices[row]] += 1

    def _is_bad(self, row: int) -> bool:
        index = self._indices[row]
        return self._used[index] > 1 or not self._allowed(index)

    def _drawn(self, size: int, number: int) -> int:
        """A place in one of equally long stretches of an axis, as many as there are rows."""
        low, high = number * size // self._wanted, (number + 1) * size // self._wanted
        return low + int(self._random() * (high - low))


class Cells:
    """How often the values of every axis can still be used."""

    def __init__(self, space: Space, wanted: int, taken: Iterable[int]) -> None:
        self._space = space
        self._wanted = wanted
        self._left = [
            Counter(cell(n * size // wanted, size, wanted) for n in range(wanted))
            for size in space.sizes
        ]
        for index in taken:
            self.fit(index)

    def fit(self, index: int) -> bool:
        """Use the values of a row, if all of them can be."""
        places = zip(self._space.ranks_at(index), self._space.sizes, strict=True)
        cells = [cell(place, size, self._wanted) for place, size in places]
        if any(left[one] <= 0 for left, one in zip(self._left, cells, strict=True)):
            return False
        for left, one in zip(self._left, cells, strict=True):
            left[one] -= 1
        return True


def is_balanced(space: Space, wanted: int, indices: Collection[int]) -> bool:
    """Whether rows use the values of every axis equally often, or as nearly so as can be."""
    rows = [space.ranks_at(index) for index in indices]
    for axis, size in enumerate(space.sizes):
        used = Counter(cell(places[axis], size, wanted) for places in rows)
        least = min(used.values()) if len(used) == min(size, wanted) else 0
        if max(used.values(), default=0) - least > 1:
            return False
    return len(rows) == wanted


def cell(place: int, size: int, wanted: int) -> int:
    """Which of the equally long stretches of an axis has a place; of a short axis, the place."""
    return place if size <= wanted else ((place + 1) * wanted - 1) // size


def shuffled(values: list[int], generator: random.Random) -> list[int]:
    # By random() alone, the one method whose numbers are promised to stay the same.
    for last in range(len(values) - 1, 0, -1):
        other = int(generator.random() * (last + 1))
        values[last], values[other] = values[other], values[last]
    return values
