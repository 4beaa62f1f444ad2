"""The valid points that a strategy draws from: all of them, or samples of a large space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy

from kernloom.base.errors import ConfigError
from kernloom.space.listed import Listed
from kernloom.space.space import Space

if TYPE_CHECKING:
    from kernloom.space.axes import Array

MAX_POINTS = 200_000
"""Maximum number of points held."""
_MAX_PRODUCT = 2**26
"""A space with unknown count is enumerated if it has at most so many combinations."""
_SAMPLE = 2_000
"""Points drawn at once from a space that is not enumerated."""
_MAX_EMPTY_DRAWS = 20
"""Draws without any new point after which a space counts as exhausted."""


def all_ranks(space: Space) -> Array | None:
    """The ranks of all valid points in order, one point per line; None if there are too many."""
    if lines := _listed(space):
        return numpy.array(sorted(lines)) if len(lines) <= MAX_POINTS else None
    if space.tables is not None:
        if space.tables.total > MAX_POINTS:
            return None
        ranks = space.tables.ranks(range(space.tables.total))
        return ranks[numpy.lexsort(ranks.T[::-1])] if len(space.axes) else ranks
    if space.size <= _MAX_PRODUCT:
        ranks = space.ranks()
        return ranks if len(ranks) <= MAX_POINTS else None
    try:
        found = space.valid(limit=True)
    except ConfigError:
        return None
    return found.ranks() if found.size <= MAX_POINTS else None


def _listed(space: Space) -> frozenset[tuple[int, ...]]:
    """The ranks of the points of a space that is a list; none for others."""
    whole = [one for one in space.constraints if isinstance(one, Listed)]
    if len(whole) < len(space.constraints):
        return frozenset()
    found = [one.lines for one in whole if len(one.axes) == len(space.axes)]
    return found[0] if len(found) == 1 else frozenset()


def shuffled_indices(space: Space, seed: int) -> Iterator[int]:
    """The indices of valid points in random order, each once, until none is left."""
    ranks = all_ranks(space)
    if ranks is not None:
        for line in numpy.random.default_rng(seed).permutation(ranks).tolist():
            yield space.index_at(line)
        return
    seen: set[int] = set()
    empty = draw = 0
    while empty < _MAX_EMPTY_DRAWS:
        sample = space.sample(_SAMPLE, seed=seed + 7919 * draw)
        new = [index for index in sample.indices if index not in seen]
        seen.update(new)
        # A sample is sorted.
        for position in numpy.random.default_rng((seed, draw)).permutation(len(new)).tolist():
            yield new[position]
        empty = 0 if new else empty + 1
        draw += 1
