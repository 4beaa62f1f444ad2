"""The valid points of a space, in order.

Axes are joined one after the other: the valid combinations of the first axes, as a matrix of ranks,
with all values of as many further axes as fit into a block of arrays. A constraint is a mask on the
block in which its last key is joined, so that a product is reduced as early as possible. If a
constraint cannot be evaluated on arrays, the remaining combinations are checked one by one.
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

MAX_ASKED = 2_000_000
"""Limit of combinations checked one by one, or found."""
_CHUNK = 10_000
"""Combinations checked one by one per chunk."""
MAX_MASKED = 2**28
"""Limit of combinations evaluated as arrays."""


def valid(space: Space, *, limit: bool) -> Selection:
    """All valid points; `limit`: give up if there are too many combinations to check."""
    if not space.constraints:
        return Selection(space, range(space.size), tried=0)
    join = _Join(space, explain=True, limit=limit)
    found = [index for lines in join.blocks() for index in _indices(space, lines)]
    return Selection(space, found, tuple(join.removed), tried=space.size)


def points(space: Space) -> Iterator[Row]:
    """The valid points, block by block."""
    if not space.constraints:
        yield from map(space.point_at, range(space.size))
        return
    narrow, _ = _narrowed(space)
    for lines in _Join(narrow).blocks():
        yield from map(narrow.point, lines.tolist())


def count(space: Space) -> int:
    """The number of valid points, by enumeration."""
    return sum(len(lines) for lines in _Join(_narrowed(space)[0]).blocks())


def all_ranks(space: Space) -> Array:
    """The ranks of the valid points, one point per line."""
    import numpy

    narrow, kept = _narrowed(space)
    found = list(_Join(narrow).blocks())
    empty = numpy.zeros((0, len(space.axes)), dtype=numpy.int32)
    ranks = numpy.concatenate([empty, *found]) if len(found) != 1 else found[0]
    for number, mine in enumerate(kept):
        if mine is not None:
            ranks[:, number] = mine[ranks[:, number]]
    return ranks


def _indices(space: Space, lines: Array) -> list[int]:
    """The index of each line of ranks."""
    if space.size >= 2**62:
        return [space.index_at(line) for line in lines.tolist()]
    index = lines[:, 0].astype("int64")
    for number in range(1, len(space.axes)):
        index = index * space.sizes[number] + lines[:, number]
    found: list[int] = index.tolist()
    return found


def _narrowed(space: Space) -> tuple[Space, list[Array | None]]:
    """A large space without the values that no valid point has, and the remaining ranks of each
    axis that lost some."""
    if space.size <= MAX_CELLS:
        return space, []
    from kernloom.space.counting import possible_ranks

    kept = possible_ranks(space)
    axes = [
        axis if ranks is None or not isinstance(axis, Axis) else axis.some(ranks.tolist())
        for axis, ranks in zip(space.axes, kept, strict=True)
    ]
    return Space(tuple(axes), space.constraints), kept


class _Join:
    """The join of all axes of a space."""

    def __init__(self, space: Space, *, explain: bool = False, limit: bool = False) -> None:
        self._space = space
        self._explain = explain
        self._limit = limit
        self._ready = _ready(space)
        self._asked = self._masked = 0
        self.removed = [0] * len(space.constraints)
        """Number of combinations that each constraint removed first, if `explain` is set."""

    def blocks(self) -> Iterator[Array]:
        """The ranks of the valid points in blocks, one point per line."""
        import numpy

        if not self._space.size:
            return
        if not self._space.axes:
            valid = Grid.whole(self._space).valid()
            yield numpy.zeros((int(valid), 0), dtype=numpy.int32)
            return
        # Division is twice as fast with 32 bits.
        kind = numpy.int32 if max(*self._space.sizes, MAX_CELLS) < 2**31 else numpy.int64
        yield from self._joined(numpy.zeros((1, 0), dtype=kind))

    def _joined(self, lines: Array) -> Iterator[Array]:
        """The points that start with these ranks."""
        depth = lines.shape[1]
        if depth == len(self._space.axes):
            self._count_checks(asked=len(lines))
            yield lines
            return
        size = self._space.sizes[depth]
        step = max(1, MAX_CELLS // size)
        for first in range(0, len(lines), step):
            some = lines[first : first + step]
            for low in range(0, size, MAX_CELLS):
                high = min(low + MAX_CELLS, size)
                further = self._further(some, low, high)
                if len(further):
                    yield from self._joined(further)

    def _further(self, lines: Array, low: int, high: int) -> Array:
        """The valid combinations of these lines with a range of the next axis, and with as many
        whole axes after it as fit."""
        depth = lines.shape[1]
        end = depth + 1
        cells = len(lines) * (high - low)
        while end < len(self._space.axes) and cells * self._space.sizes[end] <= MAX_CELLS:
            cells *= self._space.sizes[end]
            end += 1
        if high - low < self._space.sizes[depth]:
            end = depth + 1
        while True:
            grid = Grid.joined(self._space, lines, low, high, end)
            alive = self._alive(grid, lines, low, end)
            if alive is not None:
                return _lines(lines, low, grid.shape[1:], alive)
            # A constraint without arrays is checked point by point: join as few axes as possible.
            end = depth + 1

    def _alive(self, grid: Grid, lines: Array, low: int, end: int) -> Array | None:
        """The positions in a grid allowed by the constraints whose last key is on these axes; None
        if one of them needs single points and several axes are joined."""
        import numpy

        depth = lines.shape[1]
        tests = [test for ready in self._ready[depth:end] for test in ready]
        masks = [(number, test, grid.true(test)) for number, test in tests]
        if end > depth + 1 and any(true is None for _, _, true in masks):
            return None
        self._count_checks(masked=prod(grid.shape))
        if not self._explain and any(
            true is not None and not numpy.any(true) for *_, true in masks
        ):
            return numpy.zeros(0, dtype=int)
        alive = numpy.ones(grid.shape, dtype=bool)
        left = alive.size
        for number, test, true in masks:
            if true is None:
                cells = numpy.flatnonzero(alive)
                alive.flat[cells] = self._answers(test, lines, low, grid.shape[1:], cells)
            else:
                alive &= true
            if self._explain:
                before, left = left, int(numpy.count_nonzero(alive))
                self.removed[number] += (before - left) * prod(self._space.sizes[end:])
        return numpy.flatnonzero(alive)

    def _answers(
        self, test: Constraint, lines: Array, low: int, lengths: tuple[int, ...], cells: Array
    ) -> list[bool]:
        """The truth of a constraint for some cells of a grid, checked one by one."""
        answers = []
        for first in range(0, len(cells), _CHUNK):
            some = _lines(lines, low, lengths, cells[first : first + _CHUNK])
            for ranks in some.tolist():
                self._count_checks(asked=1)
                row: Row = {}
                for axis, rank in zip(self._space.axes, ranks, strict=False):
                    row.update(axis.at(rank))
                answers.append(test.holds(row))
        return answers

    def _count_checks(self, *, asked: int = 0, masked: int = 0) -> None:
        self._asked += asked
        self._masked += masked
        if self._limit and (self._asked > MAX_ASKED or self._masked > MAX_MASKED):
            raise ConfigError(
                f"the constraints leave more than {MAX_ASKED:,} of {self._space.size:,} "
                "combinations to look at",
                key="sweep",
                hint="Take some of them: sweep.sample.count=1000.",
            )


def _lines(lines: Array, low: int, lengths: tuple[int, ...], cells: Array) -> Array:
    """Lines of ranks, each extended by the ranks of some cells of the joined axes."""
    import numpy

    depth = lines.shape[1]
    kind = lines.dtype
    ranks = numpy.empty((len(cells), depth + len(lengths)), dtype=kind, order="F")
    rest = cells.astype(kind)
    for number in range(len(lengths) - 1, -1, -1):
        before = rest
        rest = rest // lengths[number]
        numpy.subtract(before, rest * lengths[number], out=ranks[:, depth + number])
    ranks[:, depth] += low
    if depth:
        ranks[:, :depth] = lines[rest]
    return ranks


def _ready(space: Space) -> list[list[tuple[int, Constraint]]]:
    """For each axis, the constraints that can be evaluated once its value is known."""
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
