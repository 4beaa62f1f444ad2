"""Constraints evaluated on whole arrays of combinations at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.space.axes import Axis, Row
from kernloom.space.space import Constraint, Space

if TYPE_CHECKING:
    from kernloom.space.axes import Array

MAX_CELLS = 4_000_000
"""Maximum combinations held at once."""
SAMPLES = 200_000
"""Sample size for a space that is too large to hold."""


@dataclass(frozen=True)
class Grid:
    """Combinations of a space: for each axis an array of ranks, which broadcast to `shape`."""

    space: Space
    ranks: tuple[Array, ...]
    """Ranks on all axes, or on the first ones."""
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, space: Space) -> Grid:
        """All combinations, one dimension per axis."""
        return cls(space, _open(space.sizes, 0), space.sizes)

    @classmethod
    def joined(cls, space: Space, lines: Array, low: int, high: int, end: int) -> Grid:
        """Lines of ranks of the first axes, a range of the next one, and all of those up to `end`;
        one dimension for the lines and one per further axis."""
        depth = lines.shape[1]
        lengths = (high - low, *space.sizes[depth + 1 : end])
        first = tuple(lines[:, n].reshape(-1, *[1] * len(lengths)) for n in range(depth))
        if len(lines) == 1:
            first = tuple(ranks.reshape(()) for ranks in first)
        return cls(space, (*first, *_open(lengths, low)), (len(lines), *lengths))

    @classmethod
    def lines(cls, space: Space, ranks: Array) -> Grid:
        """The combinations in the lines of a matrix of ranks."""
        return cls(space, tuple(ranks.T), (len(ranks),))

    @classmethod
    def scattered(cls, space: Space, count: int, seed: int) -> Grid:
        """Random combinations."""
        import numpy

        random = numpy.random.default_rng(seed)
        ranks = tuple(random.integers(size, size=count) for size in space.sizes)
        return cls(space, ranks, (count,))

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Key -> its values; keys whose values are not scalars are left out."""
        values: dict[str, Any] = {}
        for axis, ranks in zip(self.space.axes, self.ranks, strict=False):
            if not isinstance(axis, Axis):
                continue
            for name, column in zip(axis.names, axis.columns, strict=True):
                if isinstance(column, range) and abs(column.start) + abs(column.stop) < 2**53:
                    values[name] = column.start + ranks * column.step
                elif name in axis.arrays:
                    values[name] = axis.arrays[name][ranks]
        return {name: v if v.ndim else v.item() for name, v in values.items()}

    def mask(self, constraints: Iterable[Constraint]) -> Array | None:
        """Where all of these constraints hold; None if one cannot be evaluated on arrays."""
        import numpy

        mask = numpy.ones(self.shape, dtype=bool)
        for constraint in constraints:
            true = self.true(constraint)
            if true is None:
                return None
            mask &= true
        return mask

    def valid(self) -> Array:
        """Where all constraints of the space hold."""
        import numpy

        mask = self.mask(self.space.constraints)
        if mask is None:
            rows = [self.point(cell) for cell in range(prod(self.shape))]
            asked = [all(one.holds(row) for one in self.space.constraints) for row in rows]
            mask = numpy.array(asked, dtype=bool).reshape(self.shape)
        return mask

    def true(self, constraint: Constraint) -> Any | None:
        """Where a constraint holds, as an array that broadcasts to the shape, or as one value."""
        needs = constraint.needs
        if needs is None:
            return None
        # A key of the space may have no arrays.
        if not needs <= self.values.keys() and needs & self.space.keys - self.values.keys():
            return None
        return constraint.mask(self.values)

    def point(self, cell: int) -> Row:
        """The combination at a position of the flattened grid."""
        at = []
        for length in reversed(self.shape):
            cell, place = divmod(cell, length)
            at.append(place)
        at.reverse()
        return self.space.point([_at(ranks, at) for ranks in self.ranks])


def _open(lengths: Sequence[int], low: int) -> tuple[Array, ...]:
    """For each length the integers below it, as arrays that broadcast to all combinations; the
    first array starts at `low`."""
    import numpy

    arrays = []
    for dimension, length in enumerate(lengths):
        start = low if dimension == 0 else 0
        shape = (length,) + (1,) * (len(lengths) - 1 - dimension)
        arrays.append(numpy.arange(start, start + length).reshape(shape))
    return tuple(arrays)


def _at(ranks: Array, at: Sequence[int]) -> int:
    """The element of an array at a position of the shape it broadcasts to."""
    pairs = zip(ranks.shape, at[len(at) - ranks.ndim :], strict=True)
    return int(ranks[tuple(place if length > 1 else 0 for length, place in pairs)])


def least(space: Space, formula: str, known: Mapping[str, Any], *, key: str) -> Row | None:
    """The valid point with the smallest value of a formula; the first one of equals."""
    import numpy

    grid = Grid.whole(space) if space.size <= MAX_CELLS else Grid.scattered(space, SAMPLES, seed=0)
    cells = numpy.flatnonzero(grid.valid())
    if not cells.size and space.size > MAX_CELLS:
        grid = Grid.lines(space, space.sample(SAMPLES // 10).ranks())
        cells = numpy.arange(grid.shape[0])
    if not cells.size:
        return None
    try:
        cost = numpy.asarray(evaluate(formula, {**known, **grid.values}, key=key), dtype=float)
        costs = numpy.broadcast_to(cost, grid.shape).ravel()[cells]
    except (TypeError, ValueError):
        raise ConfigError(f"'{formula}' does not give a number", key=key) from None
    best = int(numpy.argmin(numpy.where(numpy.isnan(costs), numpy.inf, costs)))
    return grid.point(int(cells[best]))


def neighbours(space: Space, ranks: Sequence[int], *, adjacent: bool) -> Array:
    """The ranks of the valid points that differ from a point on one axis."""
    import numpy

    lines = []
    for number, (rank, size) in enumerate(zip(ranks, space.sizes, strict=True)):
        if adjacent:
            others = numpy.array([one for one in (rank - 1, rank + 1) if 0 <= one < size], int)
        else:
            others = numpy.delete(numpy.arange(size), rank)
        line = numpy.tile(numpy.array(ranks, dtype=int), (len(others), 1))
        line[:, number] = others
        lines.append(line)
    if not lines:
        return numpy.zeros((0, 0), dtype=int)
    near = numpy.concatenate(lines)
    return near[Grid.lines(space, near).valid()]
