"""Solver for tight constraints on a large product: finds the valid points without trying them all.

The axes that constraints mention are joined one after the other, as whole arrays. Each clause
filters the join as soon as its keys are known, and if a clause determines a key, its value is
looked up in the axis instead of being searched for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from kernloom.space.axes import Axis, Points
from kernloom.space.clauses import EXACT, Clause
from kernloom.space.space import Space

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_BLOCK = 2**18
"""Combinations evaluated at once."""
_COST, _PER_UNIT = 100, 100
"""Cost of evaluating a clause, and combinations per additional unit: roughly microseconds. Counted,
not measured, so that the same sweep has the same points on every machine."""
MAX_COST = 2_000_000
MAX_KEPT = 2_000_000
"""Maximum combinations kept."""
_ARRAYED = 1_000_000
"""Longest axis, other than a range, that is held as an array."""


@dataclass(frozen=True)
class Joined:
    """Combinations of rows of the first axes."""

    places: tuple[Array, ...]
    """Row number per axis; all arrays have equal length."""
    values: Mapping[str, Any]
    """Key -> value in each combination, or one value for all."""
    size: int = 1

    def some(self, chosen: Any) -> Joined:
        import numpy

        def taken(value: Any) -> Any:
            return value[chosen] if isinstance(value, numpy.ndarray) else value

        places = tuple(place[chosen] for place in self.places)
        size = len(places[0]) if places else self.size
        return Joined(places, {key: taken(value) for key, value in self.values.items()}, size)


@dataclass(frozen=True)
class _Column:
    """An axis whose values are numbers, as arrays."""

    axis: Axis

    @cached_property
    def bounds(self) -> dict[str, float]:
        columns = zip(self.axis.names, self.axis.columns, strict=True)
        return {name: _largest(values) for name, values in columns}

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        import numpy

        columns = zip(self.axis.names, self.axis.columns, strict=True)
        return {n: numpy.array(values) for n, values in columns if not isinstance(values, range)}

    def between(self, low: int, high: int) -> dict[str, Array]:
        import numpy

        return self.at(numpy.arange(low, high))

    def at(self, places: Array) -> dict[str, Array]:
        columns = zip(self.axis.names, self.axis.columns, strict=True)
        return {
            name: values.start + places * values.step
            if isinstance(values, range)
            else self._arrays[name][places]
            for name, values in columns
        }

    def places(self, name: str, wanted: Any) -> tuple[Array, Array] | None:
        """Which of the wanted values exist, and where; None if a value may occur twice."""
        import numpy

        values = self.axis.columns[self.axis.names.index(name)]
        wanted = numpy.atleast_1d(numpy.asarray(wanted))
        if isinstance(values, range):
            with numpy.errstate(invalid="ignore"):
                place, rest = numpy.divmod(wanted - values.start, values.step)
                there = (rest == 0) & (place >= 0) & (place < len(values))
            return there, numpy.where(there, place, 0).astype(int)
        column = self._arrays[name]
        order = numpy.argsort(column, kind="stable")
        if len(column) > 1 and (numpy.diff(column[order]) == 0).any():
            return None
        near = numpy.minimum(numpy.searchsorted(column[order], wanted), len(column) - 1)
        return column[order][near] == wanted, order[near]


def _largest(values: Sequence[Any]) -> float:
    ends = (values[0], values[-1]) if isinstance(values, range) else values
    return float(max(map(abs, ends)))


def _column(part: Points) -> _Column | None:
    if not isinstance(part, Axis):
        return None
    for values in part.columns:
        numbers = isinstance(values, range) or (
            len(values) <= _ARRAYED and all(type(value) in (int, float) for value in values)
        )
        if not numbers or not _largest(values) <= EXACT:
            return None
    return _Column(part)


class Solver:
    """Walks the axes of a space that clauses mention."""

    def __init__(self, space: Space, generator: random.Random) -> None:
        clauses = [clause for constraint in space.constraints for clause in constraint.clauses]
        keys = frozenset().union(*(clause.needs for clause in clauses))
        about = [n for n, part in enumerate(space.axes) if part.keys & keys]
        columns = {n: _column(space.axes[n]) for n in about}
        # Axes that are walked row by row come first, while there is only one combination.
        self.order = sorted(about, key=lambda n: columns[n] is not None)
        """The walked axes."""
        self.free = [n for n in range(len(space.axes)) if n not in about]
        self.free_size = prod(space.sizes[n] for n in self.free)
        self._parts = [space.axes[n] for n in self.order]
        self._columns = [columns[n] for n in self.order]
        self._bounds = {
            key: bound
            for column in columns.values()
            if column
            for key, bound in column.bounds.items()
        }
        self._ready: list[list[Clause]] = []
        known: frozenset[str] = frozenset()
        for part in self._parts:
            before, known = known, known | part.keys
            self._ready.append([c for c in clauses if c.needs <= known and not c.needs <= before])
        self._space = space
        self._generator = generator
        self._left = 0

    def all(self) -> tuple[Joined | None, bool]:
        """Every combination that the clauses allow, and whether the walk was complete."""
        import numpy

        self._left = MAX_COST
        found: list[Joined] = []
        kept = 0
        ended = True
        for joined in self._walk(Joined((), {}), 0):
            found.append(joined)
            kept += joined.size
            if kept > MAX_KEPT:
                ended = False
                break
        ended = ended and self._left > 0
        if not kept:
            return None, ended
        columns = zip(*(joined.places for joined in found), strict=True)
        return Joined(tuple(numpy.concatenate(column) for column in columns), {}, kept), ended

    def random_solutions(self) -> Iterator[int]:
        """Random solutions, each from a walk of its own."""
        self._left = MAX_COST
        while self._left > 0:
            joined: Joined | None = Joined((), {})
            for depth in range(len(self._parts)):
                joined = self._random_extension(joined, depth) if joined else None
            self._left -= _COST
            if joined:
                yield self.index(joined, 0, int(self._generator.random() * self.free_size))

    def index(self, joined: Joined, number: int, free: int) -> int:
        """The index of a combination of the walked axes with one of the free axes."""
        places = [0] * len(self._space.axes)
        for n, place in zip(self.order, joined.places, strict=True):
            places[n] = int(place[number])
        for n in reversed(self.free):
            free, places[n] = divmod(free, self._space.sizes[n])
        return self._space.index_at(places)

    def _walk(self, joined: Joined, depth: int) -> Iterator[Joined]:
        if depth == len(self._parts):
            yield joined
            return
        for more in self._steps(joined, depth):
            if self._left <= 0:
                return
            if more.size:
                yield from self._walk(more, depth + 1)

    def _steps(self, joined: Joined, depth: int) -> Iterator[Joined]:
        """The combinations extended by the next axis, in blocks."""
        size = self._parts[depth].size
        looked_up = self._looked_up(joined, depth)
        if looked_up:
            yield looked_up
        elif self._columns[depth] is None:
            for place in range(size):
                yield self._with_row(joined, depth, place)
        else:
            step = max(1, _BLOCK // joined.size)
            for low in range(0, size, step):
                yield self._with_slice(joined, depth, low, min(low + step, size))

    def _random_extension(self, joined: Joined, depth: int) -> Joined | None:
        """One random combination extended by the next axis, or None if none was found."""
        size = self._parts[depth].size
        more = self._looked_up(joined, depth)
        if not more:
            width = _BLOCK if self._ready[depth] else 1
            low = int(self._generator.random() * max(1, size - width + 1))
            if self._columns[depth] is None:
                low = int(self._generator.random() * size)
                more = self._with_row(joined, depth, low)
            else:
                more = self._with_slice(joined, depth, low, min(low + width, size))
        if not more.size:
            return None
        one = int(self._generator.random() * more.size)
        return more.some(slice(one, one + 1))

    def _with_row(self, joined: Joined, depth: int, place: int) -> Joined:
        import numpy

        row = self._parts[depth].at(place)
        plain = {k: value for k, value in row.items() if isinstance(value, (int, float, str))}
        places = (*joined.places, numpy.full(joined.size, place))
        return self._cut(Joined(places, {**joined.values, **plain}, joined.size), depth)

    def _with_slice(self, joined: Joined, depth: int, low: int, high: int) -> Joined:
        import numpy

        column = self._columns[depth]
        assert column
        mine = column.between(low, high)
        values = {
            key: value[:, None] if isinstance(value, numpy.ndarray) else value
            for key, value in joined.values.items()
        }
        mask = numpy.ones((joined.size, high - low), dtype=bool)
        self._left -= _COST + mask.size // _PER_UNIT
        for clause in self._ready[depth]:
            true = self._asked(clause, {**values, **mine}, mask.size)
            mask &= True if true is None else true
        before, place = numpy.nonzero(mask)
        kept = joined.some(before)
        return Joined(
            (*kept.places, place + low),
            {**kept.values, **{name: array[place] for name, array in mine.items()}},
            len(place),
        )

    def _looked_up(self, joined: Joined, depth: int) -> Joined | None:
        """The combinations extended by the value that a clause requires; None if none does."""
        import numpy

        column = self._columns[depth]
        for clause in self._ready[depth] if column else ():
            assert column
            for name in column.axis.names:
                wanted = clause.solved(name, joined.values, self._bounds)
                if wanted is None or isinstance(wanted, (str, tuple, list)):
                    continue
                self._left -= _COST + joined.size // _PER_UNIT
                found = column.places(name, wanted)
                if not found:
                    continue
                there, place = (numpy.broadcast_to(array, joined.size) for array in found)
                kept, place = joined.some(there), place[there]
                values = {**kept.values, **column.at(place)}
                return self._cut(Joined((*kept.places, place), values, len(place)), depth)
        return None

    def _cut(self, joined: Joined, depth: int) -> Joined:
        import numpy

        mask = numpy.ones(joined.size, dtype=bool)
        for clause in self._ready[depth]:
            true = self._asked(clause, joined.values, joined.size)
            mask &= True if true is None else true
        return joined if mask.all() else joined.some(mask)

    def _asked(self, clause: Clause, values: Mapping[str, Any], size: int) -> Any:
        self._left -= _COST + size // _PER_UNIT
        return clause.mask(values, self._bounds)
