"""A list of points as a constraint: a space whose valid points are known one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from kernloom.space.axes import Axis, Row
from kernloom.space.clauses import Clause
from kernloom.space.space import Space

if TYPE_CHECKING:
    from kernloom.space.axes import Array

_MAX_ROOT = 2**20
"""A larger product of axes is enumerated axis by axis, by the beginnings of the listed points."""
_MAX_INDEX = 2**62


@dataclass(frozen=True, eq=False)
class Listed:
    """The combinations of some axes that are in a list."""

    axes: tuple[Axis, ...]
    """Axes of one key each."""
    lines: frozenset[tuple[int, ...]]
    """The ranks of the listed points on these axes."""

    @cached_property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(axis.keys for axis in self.axes))

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return ()

    def split(self) -> tuple[Listed, ...]:
        return (self,)

    def holds(self, row: Row) -> bool:
        return tuple(axis.rank(row) for axis in self.axes) in self.lines

    def mask(self, values: Mapping[str, Any]) -> Any | None:
        import numpy

        if self._indices is None:
            return None
        index: Any = 0
        for axis in self.axes:
            ranks = _ranks(axis, numpy.asarray(values[axis.names[0]]))
            if ranks is None:
                return None
            index = index * axis.size + ranks
        places = numpy.searchsorted(self._indices, index)
        return self._indices[numpy.minimum(places, len(self._indices) - 1)] == index

    @cached_property
    def _indices(self) -> Array | None:
        """The sorted indices of the listed points in the product of the axes."""
        import numpy

        sizes = [axis.size for axis in self.axes]
        if prod(sizes) >= _MAX_INDEX or not self.lines:
            return None
        found = numpy.zeros(len(self.lines), dtype=numpy.int64)
        for column, size in zip(numpy.array(list(self.lines)).T, sizes, strict=True):
            found = found * size + column
        return numpy.sort(found)


def _ranks(axis: Axis, values: Array) -> Array | None:
    """The ranks of values of an axis; None if the values cannot be sorted."""
    import numpy

    options = axis.arrays.get(axis.names[0])
    if options is None or options.dtype == object or options.dtype.kind != values.dtype.kind:
        return None
    order = numpy.argsort(options)
    places = numpy.searchsorted(options, values, sorter=order)
    found: Array = order[numpy.minimum(places, len(order) - 1)]
    return found


def listed_space(options: Mapping[str, Sequence[Any]], lines: Sequence[Sequence[int]]) -> Space:
    """The space of points that are given by their ranks on axes of one key each."""
    axes = tuple(Axis((name,), (tuple(values),)) for name, values in options.items())
    whole = frozenset(tuple(line) for line in lines)
    if prod(axis.size for axis in axes) == len(whole):
        return Space(axes)
    constraints = [Listed(axes, whole)]
    if prod(axis.size for axis in axes) > _MAX_ROOT:
        starts = [
            Listed(axes[:depth], frozenset(line[:depth] for line in whole))
            for depth in range(2, len(axes))
        ]
        # A beginning that excludes nothing new is left out.
        pairs = pairwise([None, *starts])
        constraints = [
            start
            for before, start in pairs
            if start and (before is None or _narrows(before, start))
        ] + constraints
    return Space(axes, tuple(constraints))


def _narrows(before: Listed, start: Listed) -> bool:
    return len(start.lines) < len(before.lines) * start.axes[-1].size
