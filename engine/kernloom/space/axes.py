"""Axes: ordered values of named keys, read by rank (their position) and never expanded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Row = dict[str, Any]
"""One point: its keys with their values."""
_MAX_ARRAY = 2**22
"""Longest axis that is held as an array."""
_LONG = 2**62
"""Bound of integers that are held as 64-bit elements."""


class Points(Protocol):
    """Points by rank: an axis of a space, or the points of a sweep."""

    @property
    def size(self) -> int: ...
    @property
    def keys(self) -> frozenset[str]:
        """All keys that any point has."""
        ...

    def at(self, rank: int) -> Row: ...


@dataclass(frozen=True)
class Axis:
    """The values of one key, or of several that are swept together."""

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    """Values of each name, all of equal length."""

    @cached_property
    def size(self) -> int:
        return len(self.columns[0])

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(self.names)

    def at(self, rank: int) -> Row:
        if len(self.names) == 1:
            return {self.names[0]: self.columns[0][rank]}
        return {name: values[rank] for name, values in zip(self.names, self.columns, strict=True)}

    def rank(self, row: Mapping[str, Any]) -> int | None:
        """The first rank with the values of a point; 1 and 1.0 are the same value, true is not."""
        if len(self.columns) == 1 and isinstance(self.columns[0], range):
            return _rank_in_range(self.columns[0], row[self.names[0]])
        try:
            return self._ranks.get(tuple(_distinct(row[name]) for name in self.names))
        except TypeError:  # lists are not hashable
            return rank_of(self, row, listed=True)

    def some(self, ranks: Sequence[int]) -> Axis:
        """The axis restricted to these ranks."""
        return Axis(self.names, tuple([column[n] for n in ranks] for column in self.columns))

    @cached_property
    def _ranks(self) -> dict[tuple[Any, ...], int]:
        ranks: dict[tuple[Any, ...], int] = {}
        for rank, values in enumerate(zip(*self.columns, strict=True)):
            ranks.setdefault(tuple(map(_distinct, values)), rank)
        return ranks

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """Values of each key as an array; keys with other values than scalars are left out."""
        if self.size > _MAX_ARRAY:
            return {}
        columns = zip(self.names, self.columns, strict=True)
        arrays = {name: _array(values) for name, values in columns}
        return {name: array for name, array in arrays.items() if array is not None}


def _distinct(value: Any) -> tuple[bool, Any]:
    """True and 1 are equal in Python, but different values here."""
    return isinstance(value, bool), value


def _rank_in_range(values: range, value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return values.index(value) if type(value) is int and value in values else None


def _array(values: Sequence[Any]) -> Array | None:
    import numpy

    kinds = set(map(type, values))
    if not kinds <= {int, float, bool, str}:
        return None
    # In an array of one type, numbers mixed with text become text, and booleans become numbers.
    alike = len(kinds) == 1 or kinds == {int, float}
    fits = not alike or int not in kinds or -_LONG < min(values) <= max(values) < _LONG
    return numpy.array(values, dtype=None if alike and fits else object)


@dataclass(frozen=True)
class Rows:
    """Points in a list."""

    rows: Sequence[Row]

    @property
    def size(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(key for row in self.rows for key in row)

    def at(self, rank: int) -> Row:
        return self.rows[rank]


@dataclass(frozen=True)
class Union:
    """The points of several parts, concatenated."""

    parts: tuple[Points, ...]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(part.size for part in self.parts))

    @cached_property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset().union(*(part.keys for part in self.parts))

    def at(self, rank: int) -> Row:
        for part, end in zip(self.parts, self._ends, strict=True):
            if rank < end:
                return part.at(rank - end + part.size)
        raise IndexError(rank)


def rows_of(points: Points) -> Iterator[Row]:
    return (points.at(rank) for rank in range(points.size))


def rank_of(points: Points, row: Mapping[str, Any], *, listed: bool = False) -> int | None:
    """The first rank whose point agrees with the row on all keys of the point."""
    if isinstance(points, Axis) and not listed:
        return points.rank(row) if points.keys <= row.keys() else None
    mine = {key: _distinct(value) for key, value in row.items() if key in points.keys}
    for rank, other in enumerate(rows_of(points)):
        if mine == {key: _distinct(value) for key, value in other.items()}:
            return rank
    return None
