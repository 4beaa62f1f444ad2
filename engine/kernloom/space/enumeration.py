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
from kernloom.space.axes import Axis, Row
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
    walk = _Walk(space, explain=True, limit=limit)
    found: list[int] = []
    for low, cells in walk.blocks():
        found += cells.tolist() if not low else [low + cell for cell in cells.tolist()]
    return Selection(space, found, tuple(walk.removed), looked_at=space.size)


def points(space: Space) -> Iterator[Row]:
    """The valid points, block by block."""
    if not space.constraints:
        yield from map(space.point_at, range(space.size))
        return
    narrow, _ = _narrowed(space)
    for low, cells in _Walk(narrow).blocks():
        for ranks in _ranks(narrow, low, cells).tolist():
            yield narrow.point(ranks)


def count(space: Space) -> int:
    """How many points are valid, by looking at every combination."""
    return sum(len(cells) for _, cells in _Walk(_narrowed(space)[0]).blocks())


def all_ranks(space: Space) -> Array:
    """The ranks of the valid points, one point per line."""
    import numpy

    narrow, kept = _narrowed(space)
    found = [_ranks(narrow, low, cells) for low, cells in _Walk(narrow).blocks()]
    empty = numpy.zeros((0, len(space.axes)), dtype=numpy.int32)
    ranks = numpy.concatenate([empty, *found]) if len(found) != 1 else found[0]
    for number, mine in enumerate(kept):
        if mine is not None:
            ranks[:, number] = mine[ranks[:, number]]
    return ranks


def _narrowed(space: Space) -> tuple[Space, list[Array | None]]:
    """A large space without the values that no valid point has, and the ranks that are left on
    each axis where some are left out."""
    if space.size <= MAX_CELLS:
        return space, []
    from kernloom.space.counting import possible_ranks

    kept = possible_ranks(space)
    axes = [
        axis if ranks is None or not isinstance(axis, Axis) else axis.some(ranks.tolist())
        for axis, ranks in zip(space.axes, kept, strict=True)
    ]
    return Space(tuple(axes), space.constraints), kept


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

    def __init__(self, space: Space, *, explain: bool = False, limit: bool = False) -> None:
        self._space = space
        self._explain = explain
        self._limit = limit
        self._ready = _ready(space)
        self._behind = [prod(space.sizes[depth + 1 :]) for depth in range(len(space.axes))]
        self._visited = self._masked = 0
        self.removed = [0] * len(space.constraints)
        """How many combinations each constraint removed first, if that is to be explained."""

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """The first index of each block, and the positions of the valid points behind it."""
        import numpy

        if not self._space.size:
            return
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
        masks = []
        for number, test in (one for tests in self._ready[len(prefix) :] for one in tests):
            true = grid.true(test)
            if true is None:
                return None
            if not self._explain and not numpy.any(true):
                return numpy.zeros(0, dtype=int)
            masks.append((number, true))
        alive = numpy.ones(grid.shape, dtype=bool)
        left = alive.size
        for number, true in masks:
            alive &= true
            if self._explain:
                before, left = left, int(numpy.count_nonzero(alive))
                self.removed[number] += before - left
        cells = numpy.flatnonzero(alive)
        self._masked += alive.size
        self._look_at(len(cells))
        return cells

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
