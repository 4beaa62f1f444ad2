"""The search space of a sweep or a kernel: axes, and constraints on their combinations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kernloom.base.errors import UsageError, nearest
from kernloom.space.axes import Axis, Points, Row, rank_of
from kernloom.space.clauses import Clause
from kernloom.space.requirements import Requirement

if TYPE_CHECKING:
    from kernloom.space.axes import Array
    from kernloom.space.counting import Tables

Method = Literal["uniform", "random", "latin_hypercube"]


class Constraint(Protocol):
    """A condition on every point of a space."""

    @property
    def needs(self) -> frozenset[str] | None:
        """Keys it depends on; None: any key of the point's config."""
        ...

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """Conditions implied by the constraint that can be solved; they may allow more points."""
        ...

    def holds(self, row: Row) -> bool: ...

    def mask(self, values: Mapping[str, Any]) -> Any | None:
        """Where it holds, for scalar values or arrays that broadcast: `holds` for each element.
        None if arrays cannot decide."""
        ...

    def split(self) -> tuple[Constraint, ...]:
        """Equivalent constraints, on fewer keys each where possible."""
        ...


@dataclass(frozen=True)
class Space:
    """Every combination of the axes' values that satisfies all constraints.

    Points are in the order of nested loops over the axes, the last axis innermost. A point has a
    *rank* on each axis (the position of its value) and an *index* in the product of all axes,
    whether or not the combination is valid.
    """

    axes: tuple[Points, ...]
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(
        cls,
        values: Mapping[str, Sequence[Any]],
        where: Iterable[str] = (),
        known: Mapping[str, Any] | None = None,
    ) -> Space:
        """The space of these keys and values, with constraints over keys and `known` names."""
        axes = tuple(Axis((name,), (options,)) for name, options in values.items())
        others = {name: value for name, value in (known or {}).items() if name not in values}
        return cls(axes, tuple(Requirement(text, others) for text in where))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def size(self) -> int:
        """The number of combinations, valid or not."""
        return prod(self.sizes)

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset().union(*(axis.keys for axis in self.axes))

    def count(self) -> int:
        """The number of valid points: exact, and without enumeration as long as no chain of
        constraints connects too many axes (see `counting`)."""
        from kernloom.space.enumeration import count

        return self.tables.total if self.tables else count(self)

    def __iter__(self) -> Iterator[Row]:
        """The valid points in order, enumerated lazily."""
        from kernloom.space.enumeration import points

        return points(self)

    def ranks(self) -> Array:
        """The ranks of all valid points, one point per line, in order."""
        from kernloom.space.enumeration import all_ranks

        return all_ranks(self)

    def valid(self, *, limit: bool = False) -> Selection:
        """All valid points; `limit`: refuse to check too many combinations."""
        from kernloom.space.enumeration import valid

        return valid(self, limit=limit)

    def sample(self, count: int, seed: int = 0, method: Method = "uniform") -> Selection:
        """Up to `count` distinct valid points, the same for the same seed.

        `uniform` counts instead of trying if possible. `random` and `latin_hypercube` are the
        methods of sweeps. The selection says whether the points are uniform and whether there are
        others; see `sampling`.
        """
        from kernloom.space.sampling import sample_by_number, sampled

        if method == "uniform" and self.tables:
            return sample_by_number(self, self.tables, count, seed)
        return sampled(self, count, balanced=method == "latin_hypercube", seed=seed)

    def least(
        self, formula: str, known: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> Row | None:
        """The valid point with the smallest value of a formula over keys and `known` names, the
        first of equals. In a space of more than 4,000,000 combinations, the smallest of a fixed
        sample.
        """
        from kernloom.space.masks import least

        return least(self, formula, known or {}, key=key)

    def neighbours(self, point: Mapping[str, Any], *, adjacent: bool = False) -> list[Row]:
        """The valid points that differ on one axis; `adjacent`: by one rank there."""
        ranks = self.neighbour_ranks(self.ranks_of(point), adjacent=adjacent)
        return [self.point(line) for line in ranks.tolist()]

    def neighbour_ranks(self, ranks: Sequence[int], *, adjacent: bool = False) -> Array:
        """The ranks of the neighbours of a point, one neighbour per line."""
        from kernloom.space.masks import neighbours

        return neighbours(self, ranks, adjacent=adjacent)

    def allowed(self, ranks: Array) -> Array:
        """Whether each line of a matrix of ranks is a valid point."""
        from kernloom.space.masks import Grid

        return Grid.lines(self, ranks).valid()

    def encode(self, point: Mapping[str, Any]) -> Array:
        """A point as a vector: its rank on each axis, scaled to 0 for the first value and 1 for
        the last. An axis with one value gives 0."""
        return self.scaled(self.ranks_of(point))

    def scaled(self, ranks: Array | Sequence[int]) -> Array:
        """Ranks, a line or a matrix, scaled to [0, 1]."""
        import numpy

        scaled: Array = numpy.asarray(ranks) / numpy.maximum(numpy.array(self.sizes) - 1, 1)
        return scaled

    def decode(self, vector: Sequence[float] | Array) -> Row:
        """The combination nearest to a vector; it need not be valid."""
        pairs = zip(vector, self.sizes, strict=True)
        return self.point(
            [min(max(round(float(one) * (size - 1)), 0), size - 1) for one, size in pairs]
        )

    def contains(self, point: Mapping[str, Any]) -> bool:
        """Whether a point has a value of every axis, no other keys, and is valid."""
        if not point.keys() <= self.keys or any(rank_of(a, point) is None for a in self.axes):
            return False
        return all(constraint.holds(dict(point)) for constraint in self.constraints)

    def ranks_of(self, point: Mapping[str, Any]) -> list[int]:
        """The rank of a point on each axis."""
        ranks = []
        for axis in self.axes:
            rank = rank_of(axis, point)
            if rank is None:
                raise _not_in(axis, point)
            ranks.append(rank)
        return ranks

    def point(self, ranks: Sequence[int]) -> Row:
        """The combination with these ranks."""
        row: Row = {}
        for axis, rank in zip(self.axes, ranks, strict=True):
            row.update(axis.at(rank))
        return row

    def index(self, point: Mapping[str, Any]) -> int:
        """The index of a point in the product of all axes."""
        return self.index_at(self.ranks_of(point))

    def point_at(self, index: int) -> Row:
        """The combination at an index."""
        return self.point(self.ranks_at(index))

    def index_at(self, ranks: Sequence[int]) -> int:
        index = 0
        for rank, size in zip(ranks, self.sizes, strict=True):
            index = index * size + rank
        return index

    def ranks_at(self, index: int) -> list[int]:
        if not 0 <= index < self.size:
            raise IndexError(index)
        ranks = []
        for size in reversed(self.sizes):
            index, rank = divmod(index, size)
            ranks.append(rank)
        return ranks[::-1]

    @cached_property
    def tables(self) -> Tables | None:
        """Count tables of the valid points; None if they are too large."""
        from kernloom.space.counting import tables_of

        return tables_of(self)


@dataclass(frozen=True)
class Selection:
    """Valid points of a space, in order, and what is known about the other points."""

    space: Space
    indices: Sequence[int]
    removed: tuple[int, ...] = ()
    """Number of combinations that each constraint removed; the first constraint counts if several
    apply."""
    tried: int = 0
    all: bool = True
    """Whether no further valid point could have been found."""
    balanced: bool = True
    """Whether the values of every axis are used equally often, if that was requested."""
    uniform: bool = True
    """Whether every set of this many valid points was equally likely."""

    @property
    def size(self) -> int:
        return len(self.indices)

    @property
    def keys(self) -> frozenset[str]:
        return self.space.keys

    def at(self, rank: int) -> Row:
        return self.space.point_at(self.indices[rank])

    def __iter__(self) -> Iterator[Row]:
        return map(self.space.point_at, self.indices)

    def ranks(self) -> Array:
        """The ranks of the points, one point per line."""
        import numpy

        lines = [self.space.ranks_at(index) for index in self.indices]
        return numpy.array(lines, dtype=int).reshape(len(lines), len(self.space.axes))


def _not_in(axis: Points, point: Mapping[str, Any]) -> UsageError:
    missing = sorted(axis.keys - point.keys())
    if missing and isinstance(axis, Axis):
        hint = nearest(missing[0], point)
        return UsageError(f"the point has no value for '{missing[0]}'", hint=hint)
    shown = ", ".join(f"{key}={point[key]}" for key in sorted(axis.keys & point.keys()))
    return UsageError(f"{shown or 'the point'} is not among the values of its axis")
