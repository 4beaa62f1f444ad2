"""The points that a model predicts: all of a space, or a changing selection of a large one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy

from kernloom.space.space import Space
from kernloom.tune.pool import all_ranks

if TYPE_CHECKING:
    from kernloom.space.axes import Array

MAX_CANDIDATES = 20_000
_SAMPLE = 4_000
"""Random points in a selection of a large space."""


class Candidates:
    """Valid points with their ranks and their scaled ranks on the axes with several values."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self._seed = seed
        self._free = [n for n, size in enumerate(space.sizes) if size > 1]
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
    def axes(self) -> int:
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
        self.scaled = self.space.scaled(ranks)[:, self._free].astype(numpy.float32)
        self.indices = [self.space.index_at(line) for line in ranks.tolist()]
        self._rows = {index: row for row, index in enumerate(self.indices)}

    def row(self, index: int) -> int | None:
        return self._rows.get(index)

    def rows(self, indices: Iterable[int]) -> list[int]:
        """The rows of those points that are here."""
        return [row for index in indices if (row := self._rows.get(index)) is not None]

    def encoded(self, indices: Sequence[int]) -> Array:
        """Scaled ranks of points, whether or not they are here."""
        lines = numpy.array([self.space.ranks_at(index) for index in indices], dtype=int)
        lines = lines.reshape(len(indices), len(self.space.axes))
        scaled: Array = self.space.scaled(lines)[:, self._free].astype(numpy.float32)
        return scaled

    def spread(self, count: int, generator: numpy.random.Generator, tries: int = 60) -> list[int]:
        """Random points whose values on every axis are distributed as those of all points: the
        most even of some random choices."""
        count = min(count, self.size)
        if not count:
            return []
        shares = (numpy.arange(count) + 0.5) / count
        usual = numpy.quantile(self.scaled, shares, axis=0)
        best, chosen = numpy.inf, numpy.zeros(0, dtype=int)
        for _ in range(tries):
            rows = generator.choice(self.size, count, replace=False)
            uneven = numpy.abs(numpy.sort(self.scaled[rows], axis=0) - usual).sum()
            if uneven < best:
                best, chosen = uneven, rows
        return [self.indices[row] for row in chosen]
