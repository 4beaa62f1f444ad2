"""Latin hypercubes: samples that use the values of every axis equally often."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from kernloom.space.space import Space

_STARTS = 5
"""Number of designs drawn and repaired in search of one with distinct, allowed rows."""
_MAX_SWAPS = 20_000


def design(
    space: Space, wanted: int, generator: random.Random, allowed: Callable[[int], bool]
) -> list[int]:
    """The good rows of the best design: all requested ones, or fewer if no design was found."""
    best: list[int] = []
    swaps = min(_MAX_SWAPS, 1000 + 20 * wanted * len(space.axes))
    for _ in range(_STARTS):
        mending = _DesignRepair(space, wanted, generator, allowed)
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


class _DesignRepair:
    """Repair of a design: rows swap values, which keeps it balanced, until all rows are good."""

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
        """Swap one value of a bad row with another row, unless that makes more rows bad."""
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
        """Other ranks from the same strata."""
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
        """A random rank in one stratum of an axis; there are as many strata as rows."""
        low, high = number * size // self._wanted, (number + 1) * size // self._wanted
        return low + int(self._random() * (high - low))


class Cells:
    """Remaining uses of the values of every axis."""

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
        """Use the values of a row, if each has a use left."""
        places = zip(self._space.ranks_at(index), self._space.sizes, strict=True)
        cells = [cell(place, size, self._wanted) for place, size in places]
        if any(left[one] <= 0 for left, one in zip(self._left, cells, strict=True)):
            return False
        for left, one in zip(self._left, cells, strict=True):
            left[one] -= 1
        return True


def is_balanced(space: Space, wanted: int, indices: Collection[int]) -> bool:
    """Whether rows use the values of every axis equally often, as far as the numbers permit."""
    rows = [space.ranks_at(index) for index in indices]
    for axis, size in enumerate(space.sizes):
        used = Counter(cell(places[axis], size, wanted) for places in rows)
        least = min(used.values()) if len(used) == min(size, wanted) else 0
        if max(used.values(), default=0) - least > 1:
            return False
    return len(rows) == wanted


def cell(place: int, size: int, wanted: int) -> int:
    """The stratum that a rank of an axis belongs to; on a short axis, the rank itself."""
    return place if size <= wanted else ((place + 1) * wanted - 1) // size


def shuffled(values: list[int], generator: random.Random) -> list[int]:
    # Only random() is guaranteed to produce the same numbers in later versions of Python.
    for last in range(len(values) - 1, 0, -1):
        other = int(generator.random() * (last + 1))
        values[last], values[other] = values[other], values[last]
    return values
