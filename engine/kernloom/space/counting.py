"""Counts of the valid points of a space, without enumerating them.

A constraint is a table over the axes it mentions. Axes are eliminated one after the other: the
tables that mention an axis are multiplied, and the product is summed over that axis. The sum is a
table over the other axes that counts the choices of the eliminated ones. At the end one number is
left. Time and memory depend on the largest product of tables, not on the space: 10^12 points with
constraints on two or three axes each take a few small tables.

The tables also number the valid points, so that a point can be found by its number. This draws
points with equal probability from spaces that cannot be enumerated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from kernloom.space.axes import Axis
from kernloom.space.masks import Grid
from kernloom.space.space import Constraint, Space

if TYPE_CHECKING:
    from kernloom.space.axes import Array

MAX_CELLS = 2**22
"""Maximum cells of one table."""
MAX_TOTAL = 2**24
"""Maximum cells of all tables."""


@dataclass(frozen=True)
class _Table:
    """Number of points for each combination of some axes."""

    axes: tuple[int, ...]
    cells: Array
    """Counts, one dimension per axis."""
    source: _Step | None = None
    """The elimination that produced this table as a sum."""

    def across(self, axes: Sequence[int]) -> Array:
        """The cells, broadcast to the dimensions of these axes, which include the table's own."""
        import numpy

        order = sorted(range(len(self.axes)), key=lambda n: axes.index(self.axes[n]))
        sizes = dict(zip(self.axes, self.cells.shape, strict=True))
        cells = numpy.transpose(self.cells, order)
        return cells.reshape([sizes.get(axis, 1) for axis in axes])


@dataclass(frozen=True, eq=False)
class _Step:
    """The elimination of one axis."""

    axis: int
    others: tuple[int, ...]
    """Axes that the choice on this axis depends on."""
    joint: Array
    """Number of completions for each value of the other axes and of this one."""
    inner: tuple[_Table, ...]
    """Input tables that are sums of earlier eliminations."""


@dataclass(frozen=True)
class Tables:
    """The number of valid points, and access to each point by its number."""

    space: Space
    steps: tuple[_Step, ...]
    roots: tuple[_Table, ...]
    """Final sums, single numbers; their product counts the combinations of all axes that
    constraints mention."""
    free: tuple[int, ...]
    """Axes that no constraint mentions."""

    @cached_property
    def total(self) -> int:
        sizes = [self.space.sizes[axis] for axis in self.free]
        return prod(sizes) * prod(int(root.cells[()]) for root in self.roots)

    def ranks(self, numbers: Sequence[int]) -> Array:
        """The ranks of valid points by their numbers below `total`, one point per line."""
        import numpy

        # Python integers where 64 bits are too few.
        kind: Any = numpy.int64 if self.space.size < 2**62 else object
        rest = numpy.array(numbers, dtype=kind)
        ranks = numpy.zeros((len(rest), len(self.space.axes)), dtype=numpy.int64)
        for axis in self.free:
            rest, ranks[:, axis] = _divided(rest, self.space.sizes[axis])
        local: dict[int, Array] = {}
        for root in self.roots:
            rest, mine = _divided(rest, int(root.cells[()]))
            if root.source:
                local[root.source.axis] = mine
        for step in reversed(self.steps):
            rank, rest = _chosen(step, ranks, local.pop(step.axis))
            ranks[:, step.axis] = rank
            for table in step.inner:
                counts = table.cells[tuple(ranks[:, axis] for axis in table.axes)]
                assert table.source
                rest, local[table.source.axis] = _divided(rest, counts)
        return ranks


def _divided(numbers: Array, by: Any) -> tuple[Array, Array]:
    # numpy.divmod does not support Python integers beyond 64 bits.
    return numbers // by, numbers % by


def _chosen(step: _Step, ranks: Array, numbers: Array) -> tuple[Array, Array]:
    """The rank on an axis for each number, and the remainder of the number."""
    import numpy

    chosen, left = numpy.zeros_like(ranks[:, 0]), numpy.zeros_like(numbers)
    width = max(1, MAX_CELLS // step.joint.shape[-1])
    for low in range(0, len(numbers), width):
        part = slice(low, low + width)
        at = tuple(ranks[part, axis] for axis in step.others)
        ways = step.joint[at].astype(numbers.dtype)
        ends = numpy.cumsum(numpy.atleast_2d(ways), axis=1)
        mine = numbers[part]
        rank = (ends <= mine[:, None]).sum(axis=1).astype(int)
        before = numpy.concatenate([numpy.zeros_like(ends[:, :1]), ends], axis=1)
        lines = numpy.arange(len(mine)) if len(ends) > 1 else 0
        chosen[part], left[part] = rank, mine - before[lines, rank]
    return chosen, left


def tables_of(space: Space) -> Tables | None:
    """The tables of a space; None if they would be too large, or if a constraint cannot be
    evaluated on arrays."""
    tables: list[_Table] = []
    for constraint in space.constraints:
        found = _tables_of(space, constraint)
        if found is None:
            return None
        tables += found
    mentioned = {axis for table in tables for axis in table.axes}
    free = tuple(axis for axis in range(len(space.axes)) if axis not in mentioned)
    steps: list[_Step] = []
    total = 0
    while mentioned:
        axis = min(mentioned, key=lambda one: (_width(space, tables, one), -one))
        width = _width(space, tables, axis)
        total += width
        if width > MAX_CELLS or total > MAX_TOTAL:
            return None
        step, table = _eliminated(space, tables, axis)
        tables = [other for other in tables if axis not in other.axes] + [table]
        steps.append(step)
        mentioned.discard(axis)
    return Tables(space, tuple(steps), tuple(tables), free)


def possible_ranks(space: Space) -> list[Array | None]:
    """For each axis the ranks that every constraint allows for some values of its other axes;
    None if no rank is known to be impossible."""
    import numpy

    allowed: list[Any] = [None] * len(space.axes)
    for constraint in space.constraints:
        for table in _tables_of(space, constraint) or ():
            for dimension, axis in enumerate(table.axes):
                others = tuple(n for n in range(len(table.axes)) if n != dimension)
                mine = numpy.any(table.cells, axis=others)
                allowed[axis] = mine if allowed[axis] is None else allowed[axis] & mine
    return [None if one is None or one.all() else numpy.flatnonzero(one) for one in allowed]


def _tables_of(space: Space, constraint: Constraint) -> list[_Table] | None:
    found = _tables(space, constraint.split())
    return _tables(space, (constraint,)) if found is None else found


def _tables(space: Space, constraints: Iterable[Constraint]) -> list[_Table] | None:
    """Each constraint as a table of its allowed combinations."""
    import numpy

    tables = []
    for constraint in constraints:
        needs = constraint.needs
        if needs is None:
            return None
        axes = tuple(n for n, axis in enumerate(space.axes) if axis.keys & needs)
        if prod(space.sizes[n] for n in axes) > MAX_CELLS:
            return None
        if not all(isinstance(space.axes[n], Axis) for n in axes):
            return None
        small = Space(tuple(space.axes[n] for n in axes), (constraint,))
        grid = Grid.whole(small)
        true = grid.true(constraint)
        if true is None:
            return None
        tables.append(_Table(axes, numpy.broadcast_to(true, grid.shape)))
    return tables


def _width(space: Space, tables: Sequence[_Table], axis: int) -> int:
    """Number of cells in the product of the tables that mention an axis."""
    axes = {one for table in tables if axis in table.axes for one in table.axes}
    return prod(space.sizes[one] for one in axes)


def _eliminated(space: Space, tables: Sequence[_Table], axis: int) -> tuple[_Step, _Table]:
    import numpy

    mine = [table for table in tables if axis in table.axes]
    others = tuple(sorted({one for table in mine for one in table.axes} - {axis}))
    shape = tuple(space.sizes[one] for one in (*others, axis))
    joint: Array = numpy.ones(shape, dtype=bool)
    # Boolean tables first: their products take little memory.
    for table in sorted(mine, key=lambda table: table.source is not None):
        cells = table.across((*others, axis))
        joint = joint & cells if cells.dtype == bool else joint * cells
    kind: Any = numpy.int64 if space.size < 2**62 else object
    inner = tuple(table for table in mine if table.source)
    step = _Step(axis, others, joint, inner)
    ways = joint.astype(kind) if kind is object else joint
    return step, _Table(others, numpy.asarray(ways.sum(axis=-1, dtype=kind), dtype=kind), step)
