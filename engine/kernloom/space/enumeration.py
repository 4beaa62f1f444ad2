"""The valid points of a space, in order.

The first axes are walked value by value, and a constraint is asked as soon as its keys are known.
The combinations of the other axes are blocks of arrays, on which the other constraints are masks.
Where a constraint cannot be evaluated on arrays, its block is walked to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

from kernloom.base.errors import ConfigError
from kernloom.space.axes import Row
from kernloom.space.masks import MAX_CELLS, Grid
from kernloom.space.space import Constraint, Selection, Space

if TYPE_CHECKING:
    from kernloom.space.axes import Array

MAX_VISITED = 2_000_000
"""How many combinations are looked at one by one, or found, where there is a limit."""
MAX_MASKED = 2**28
"""How many combinations are looked at as arrays, where there is a limit."""


def valid(space: Space, *, limit: bool) -> Selection:
    """All valid points; `limit`: give up where there are too many combinations to look at."""
    if not space.constraints:
        return Selection(space, range(space.size), looked_at=0)
    walk = _Walk(space, limit=limit)
    found = [index for low, cells in walk.blocks() for index in _plus(low, cells)]
    return Selection(space, found, tuple(walk.removed), looked_at=space.size)


def indices(space: Space) -> Iterator[int]:
    """The indices of the valid points, block by block."""
    if not space.constraints:
        yield from range(space.size)
        return
    for low, cells in _Walk(space).blocks():
        yield from _plus(low, cells)


def count(space: Space) -> int:
    """How many points are valid, by looking at every combination."""
    return sum(len(cells) for _, cells in _Walk(space).blocks())


def all_ranks(space: Space) -> Array:
    """The ranks of the valid points, one point per line."""
    import numpy

    found = [_ranks(space, low, cells) for low, cells in _Walk(space).blocks()]
    empty = numpy.zeros((0, len(space.axes)), dtype=numpy.int32)
    return numpy.concatenate([empty, *found]) if len(found) != 1 else found[0]


def _plus(low: int, cells: Array) -> list[int]:
    found: list[int] = cells.tolist()
    return [low + cell for cell in found] if low else found


def _ranks(space: Space, low: int, cells: Array) -> Array:
    """The ranks at the indices `low + cells`."""
    import numpy

    ranks = numpy.empty((len(cells), len(space.axes)), dtype=numpy.int32, order="F")
    # A block has fewer than 2^31 cells, and division is twice as fast with 32 bits.
    rest = cells.astype(numpy.int32)
    for number in range(len(space.axes) - 1, -1, -1):
        size = space.sizes[number]
        low, first = divmod(low, size)
        rest += first
        before = rest
        rest = rest // size
        numpy.subtract(before, rest * size, out=ranks[:, number])
    return ranks


class _Walk:
    """One walk through a space."""

    def __init__(self, space: Space, *, limit: bool = False) -> None:
        self._space = space
        self._limit = limit
        self._ready = _ready(space)
        self._behind = [prod(space.sizes[depth + 1 :]) for depth in range(len(space.axes))]
        self._visited = self._masked = 0
        self.removed = [0] * len(space.constraints)

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """The first index of each block, and the positions of the valid points behind it."""
        import numpy

        if not self._space.axes:
            yield 0, numpy.flatnonzero(Grid.whole(self._space).valid())
            return
        # The first axis of the blocks; an axis that is too long is cut into several.
        first = next(n for n, behind in enumerate(self._behind) if behind <= MAX_CELLS)
        step = MAX_CELLS // max(1, self._behind[first])
        for row, ranks in self._prefixes({}, (), first):
            index = self._space.index_at((*ranks, *[0] * (len(self._space.axes) - first)))
            for low in range(0, self._space.sizes[first], step):
                high = min(low + step, self._space.sizes[first])
                cells = self._block(ranks, low, high)
                if cells is None:
                    walked = [*self._rows(row, first, 0, low, high)]
                    cells = numpy.array(walked, dtype=int)
                yield index + low * self._behind[first], cells

    def _prefixes(
        self, row: Row, ranks: tuple[int, ...], depth: int
    ) -> Iterator[tuple[Row, tuple[int, ...]]]:
        """The combinations of the first axes that no constraint has refused yet."""
        at = len(ranks)
        if at == depth:
            yield row, ranks
            return
        for rank in range(self._space.sizes[at]):
            here = {**row, **self._space.axes[at].at(rank)}
            if self._holds(here, at):
                yield from self._prefixes(here, (*ranks, rank), depth)

    def _block(self, prefix: tuple[int, ...], low: int, high: int) -> Array | None:
        """The valid positions in a block, by masks; None if some constraint has none."""
        import numpy

        grid = Grid.block(self._space, prefix, low, high)
        alive = numpy.ones(grid.shape, dtype=bool)
        left = alive.size
        removed = []
        for tests in self._ready[len(prefix) :]:
            for number, test in tests:
                true = grid.true(test)
                if true is None:
                    return None
                alive &= true
                before, left = left, int(numpy.count_nonzero(alive))
                removed.append((number, before - left))
        for number, count in removed:
            self.removed[number] += count
        self._masked += alive.size
        self._look_at(left)
        return numpy.flatnonzero(alive)

    def _rows(self, row: Row, depth: int, index: int, low: int, high: int) -> Iterator[int]:
        """The valid positions in a block, one combination after the other."""
        for rank in range(low, high):
            here = {**row, **self._space.axes[depth].at(rank)}
            if not self._holds(here, depth):
                continue
            position = index + (rank - low) * self._behind[depth]
            if depth == len(self._space.axes) - 1:
                yield position
            else:
                yield from self._rows(here, depth + 1, position, 0, self._space.sizes[depth + 1])

    def _holds(self, row: Row, depth: int) -> bool:
        self._look_at(1)
        for number, test in self._ready[depth]:
            if not test.holds(row):
                self.removed[number] += self._behind[depth]
                return False
        return True

    def _look_at(self, count: int) -> None:
        self._visited += count
        if self._limit and (self._visited > MAX_VISITED or self._masked > MAX_MASKED):
            raise ConfigError(
                f"the constraints leave more than {MAX_VISITED:,} of {self._space.size:,} "
                "combinations to look at",
                key="sweep",
                hint="Take some of them: sweep.sample.count=1000.",
            )


def _ready(space: Space) -> list[list[tuple[int, Constraint]]]:
    """For each axis, the constraints that can be asked once its value is known."""
    known: frozenset[str] = frozenset()
    waiting: list[tuple[int, Any]] = list(enumerate(space.constraints))
    ready = []
    for depth, axis in enumerate(space.axes):
        known |= axis.keys
        last = depth == len(space.axes) - 1
        now = [t for t in waiting if last or (t[1].needs is not None and t[1].needs <= known)]
        waiting = [test for test in waiting if test not in now]
        ready.append(now)
    return ready
