"""Spaces of points that are counted and looked into by index, and never written out whole.

A row is one point: its keys with their values. What is asked of rows (constraints, exclusions) is
asked as soon as the keys it needs are known, so that a product is cut down while it is walked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, Protocol

from kernloom.base.errors import ConfigError
from kernloom.space.clauses import Clause

Row = dict[str, Any]
MAX_VISITED = 2_000_000
"""How many rows are looked at to find out which of them are wanted."""


class Space(Protocol):
    """Rows by index."""

    @property
    def size(self) -> int: ...
    @property
    def keys(self) -> frozenset[str]:
        """Every key that a row may have."""
        ...

    def at(self, index: int) -> Row: ...


@dataclass(frozen=True)
class Axis:
    """The values of one key, or of several that move together."""

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    """For each name its values, all equally many."""

    @cached_property
    def size(self) -> int:
        return len(self.columns[0])

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(self.names)

    def at(self, index: int) -> Row:
        return {name: values[index] for name, values in zip(self.names, self.columns, strict=True)}


@dataclass(frozen=True)
class Rows:
    """Rows that are written out."""

    rows: Sequence[Row]

    @property
    def size(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(key for row in self.rows for key in row)

    def at(self, index: int) -> Row:
        return self.rows[index]


@dataclass(frozen=True)
class Chosen:
    """Some rows of another space."""

    space: Space
    indices: Sequence[int]

    @property
    def size(self) -> int:
        return len(self.indices)

    @property
    def keys(self) -> frozenset[str]:
        return self.space.keys

    def at(self, index: int) -> Row:
        return self.space.at(self.indices[index])


@dataclass(frozen=True)
class Union:
    """The rows of one space after those of another."""

    parts: tuple[Space, ...]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(part.size for part in self.parts))

    @cached_property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset().union(*(part.keys for part in self.parts))

    def at(self, index: int) -> Row:
        for part, end in zip(self.parts, self._ends, strict=True):
            if index < end:
                return part.at(index - end + part.size)
        raise IndexError(index)


@dataclass(frozen=True)
class Product:
    """Every row of each part with every row of the others; the last part moves fastest."""

    parts: tuple[Space, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(part.size for part in self.parts)

    @cached_property
    def size(self) -> int:
        return prod(self.sizes)

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset().union(*(part.keys for part in self.parts))

    def index(self, places: Sequence[int]) -> int:
        """The index of the row that has these rows of the parts."""
        index = 0
        for place, size in zip(places, self.sizes, strict=True):
            index = index * size + place
        return index

    def places(self, index: int) -> list[int]:
        """Which row of each part the row at an index has."""
        places = []
        for size in reversed(self.sizes):
            index, place = divmod(index, size)
            places.append(place)
        return places[::-1]

    def at(self, index: int) -> Row:
        row: Row = {}
        for part, place in zip(self.parts, self.places(index), strict=True):
            row.update(part.at(place))
        return row


def rows_of(space: Space) -> Iterator[Row]:
    return (space.at(index) for index in range(space.size))


class Test(Protocol):
    """What is asked of a row."""

    @property
    def needs(self) -> frozenset[str] | None:
        """The keys without which it cannot be asked; None: all there are."""
        ...

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """What of it can be asked of arrays, too."""
        ...

    def holds(self, row: Row) -> bool: ...


@dataclass(frozen=True)
class Found:
    """Which rows are wanted."""

    indices: Sequence[int]
    removed: tuple[int, ...]
    """How many rows each test removed; those that several would remove count for the first."""
    looked_at: int
    all: bool = True
    """Whether no other row is wanted that could have been found."""
    balanced: bool = True
    """Whether the values of every axis are used equally often, if that was asked for."""


def filtered(product: Product, tests: Sequence[Test]) -> Found:
    """The rows of which all tests hold."""
    ready = _ready(product, tests)
    behind = [prod(product.sizes[depth + 1 :]) for depth in range(len(product.parts))]
    removed = [0] * len(tests)
    visited = 0

    def walk(depth: int, row: Row, index: int) -> Iterator[int]:
        nonlocal visited
        if depth == len(product.parts):
            yield index
            return
        part = product.parts[depth]
        for place in range(part.size):
            visited += 1
            if visited > MAX_VISITED:
                raise ConfigError(
                    f"the constraints leave more than {MAX_VISITED:,} of {product.size:,} "
                    "combinations to look at",
                    key="sweep",
                    hint="Take some of them: sweep.sample.count=1000.",
                )
            here = {**row, **part.at(place)}
            for number, test in ready[depth]:
                if not test.holds(here):
                    removed[number] += behind[depth]
                    break
            else:
                yield from walk(depth + 1, here, index * part.size + place)

    return Found(list(walk(0, {}, 0)), tuple(removed), product.size)


def _ready(product: Product, tests: Sequence[Test]) -> list[list[tuple[int, Test]]]:
    """For each part, the tests that can be asked once its row is known."""
    known: frozenset[str] = frozenset()
    waiting = list(enumerate(tests))
    ready = []
    for depth, part in enumerate(product.parts):
        known |= part.keys
        last = depth == len(product.parts) - 1
        now = [t for t in waiting if last or (t[1].needs is not None and t[1].needs <= known)]
        waiting = [test for test in waiting if test not in now]
        ready.append(now)
    return ready
