"""Genetic algorithm: parents by tournament, crossover by axis, mutation, valid children only."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy

from kernloom.tune.indexed import IndexedStrategy

if TYPE_CHECKING:
    from kernloom.space.axes import Array

_POPULATION = 20
_LEAST_PARENTS = 2
_TOURNAMENT = 3
_CHILDREN = 32
"""Children made at once; the first valid new one is asked."""
_BATCHES = 8


class Genetic(IndexedStrategy):
    name = "genetic"
    about = "crosses and mutates the best 20 points"

    def propose(self) -> int | None:
        good = self.good_results()
        if len(good) < max(_LEAST_PARENTS, min(_POPULATION, (self.search.budget or 200) // 4)):
            return self.random_point()
        parents = heapq.nsmallest(_POPULATION, good, key=lambda index: good[index])
        ranks = numpy.array([self.space.ranks_at(index) for index in parents])
        for _ in range(_BATCHES):
            children = self._children(ranks)
            for line in children[self.space.allowed(children)].tolist():
                if (index := self.space.index_at(line)) not in self.asked:
                    return index
        return self.random_point()

    def _children(self, ranks: Array) -> Array:
        """Children of parents that are sorted, the best first."""
        generator = self.generator
        shape = (_CHILDREN, len(self.space.axes))
        drawn = generator.integers(len(ranks), size=(2, _TOURNAMENT, _CHILDREN))
        mother, father = ranks[drawn.min(axis=1)]
        children = numpy.where(generator.random(shape) < 0.5, mother, father)
        sizes = numpy.array(self.space.sizes)
        step = numpy.clip(children + generator.choice([-1, 1], size=shape), 0, sizes - 1)
        other = (generator.random(shape) * sizes).astype(int)
        change = generator.random(shape)
        share = 1 / max(1, int((sizes > 1).sum()))
        children = numpy.where(change < share, step, children)
        mutated: Array = numpy.where(change < share / 2, other, children)
        return mutated
