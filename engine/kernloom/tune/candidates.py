"""The points that a model predicts: all of a space, or a changing selection of a large one.

A point is encoded by its scaled ranks. A further number for an axis of unevenly aligned integers,
such as 16, 24, 32, is the exponent of the largest power of two that divides the value: vectors,
cache lines and banks make 32 more like 64 than like 33.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy

from kernloom.space.axes import Points
from kernloom.space.space import Space
from kernloom.tune.pool import all_ranks

if TYPE_CHECKING:
    from kernloom.space.axes import Array

MAX_CANDIDATES = 20_000
_MIN_ALIGNED = 5
"""Axes of fewer values have no alignment."""
_SAMPLE = 4_000
"""Random points in a selection of a large space."""


class Candidates:
    """Valid points with their ranks on the axes with several values, and their encoding."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self._seed = seed
        self._free = [n for n, size in enumerate(space.sizes) if size > 1]
        self._alignments = {n: _alignment(space.axes[n]) for n in self._free}
        self._aligned = [n for n in self._free if self._alignments[n] is not None]
        ranks = all_ranks(space)
        self.complete = ranks is not None and len(ranks) <= MAX_CANDIDATES
        """Whether these are all valid points."""
        self._all = None if self.complete else ranks
        self._draws = 0
        if ranks is not None and self.complete:
            self._set(ranks)
        else:
            self.select(())

    @property
    def features(self) -> int:
        """The length of an encoding."""
        return len(self._free) + len(self._aligned)

    @property
    def ranked(self) -> int:
        """The number of scaled ranks, at the beginning of an encoding."""
        return len(self._free)

    @property
    def size(self) -> int:
        return len(self.indices)

    def select(self, near: Iterable[int]) -> None:
        """Make another selection: random points, and the neighbours of some points. Nothing
        changes if all points are here already."""
        if self.complete:
            return
        self._draws += 1
        seed = self._seed + 7919 * self._draws
        if self._all is not None:
            generator = numpy.random.default_rng(seed)
            drawn = self._all[generator.choice(len(self._all), _SAMPLE, replace=False)]
        else:
            drawn = self.space.sample(_SAMPLE, seed=seed).ranks()
        lines = [drawn]
        lines += [self.space.neighbour_ranks(self.space.ranks_at(index)) for index in near]
        self._set(numpy.unique(numpy.concatenate(lines), axis=0))

    def _set(self, ranks: Array) -> None:
        self.ranks = ranks[:, self._free].astype(numpy.int32)
        self.encoding = self._encode(ranks)
        self.indices = [self.space.index_at(line) for line in ranks.tolist()]
        self._rows = {index: row for row, index in enumerate(self.indices)}

    def row(self, index: int) -> int | None:
        return self._rows.get(index)

    def rows(self, indices: Iterable[int]) -> list[int]:
        """The rows of those points that are here."""
        return [row for index in indices if (row := self._rows.get(index)) is not None]

    def encoded(self, indices: Sequence[int]) -> Array:
        """The encoding of points, whether or not they are here."""
        lines = numpy.array([self.space.ranks_at(index) for index in indices], dtype=int)
        lines = lines.reshape(len(indices), len(self.space.axes))
        return self._encode(lines)

    def _encode(self, ranks: Array) -> Array:
        columns = [self.space.scaled(ranks)[:, self._free]]
        for axis in self._aligned:
            alignment = self._alignments[axis]
            assert alignment is not None
            columns.append(alignment[ranks[:, axis]][:, None])
        encoding: Array = numpy.concatenate(columns, axis=1).astype(numpy.float32)
        return encoding

    def spread(self, count: int, generator: numpy.random.Generator, tries: int = 60) -> list[int]:
        """Random points whose values on every axis are distributed as those of all points: the
        most even of some random choices."""
        count = min(count, self.size)
        if not count:
            return []
        shares = (numpy.arange(count) + 0.5) / count
        ranked = self.encoding[:, : self.ranked]
        usual = numpy.quantile(ranked, shares, axis=0)
        best, chosen = numpy.inf, numpy.zeros(0, dtype=int)
        for _ in range(tries):
            rows = generator.choice(self.size, count, replace=False)
            uneven = numpy.abs(numpy.sort(ranked[rows], axis=0) - usual).sum()
            if uneven < best:
                best, chosen = uneven, rows
        return [self.indices[row] for row in chosen]


def _alignment(axis: Points) -> Array | None:
    """For each rank the exponent of the largest power of two in the value, scaled to [0, 1]; None
    if it says no more than the rank."""
    found = [value for rank in range(axis.size) for value in axis.at(rank).values()]
    values = [value for value in found if type(value) is int and value > 0]
    if len(axis.keys) != 1 or len(values) < max(_MIN_ALIGNED, len(found)):
        return None
    if all(value & (value - 1) == 0 for value in values):
        return None
    exponents = numpy.array([(value & -value).bit_length() - 1 for value in values], dtype=float)
    return exponents / exponents.max() if exponents.max() else None
