"""The score of a search: 0 for random search, 1 for the best point at once.

It is the score of the autotuning community (Willemsen et al., 2024). At each evaluation, the
best value so far is compared with what random search is expected to have, and the budget is the
number of evaluations after which random search is expected to be 95% of the way from the median
to the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from kernloom.tune.recorded import Recording

if TYPE_CHECKING:
    from kernloom.space.axes import Array

CUTOFF = 0.95


def community_budget(recording: Recording) -> int:
    values = recording.ordered
    best, median = values[0], float(numpy.median(values))
    target = best + (median - best) * (1 - CUTOFF)
    worse = int(numpy.argmax(values[::-1] <= target))
    return max(1, math.ceil(worse / (len(values) + 1 - worse)))


def random_curve(recording: Recording, budget: int) -> Array:
    """The expected best value after 1 to `budget` random evaluations, none twice. As long as all
    of them have failed, the best value is the median."""
    values = recording.ordered
    number = recording.points
    median = float(numpy.median(values))
    padded = numpy.concatenate([values, numpy.full(number - len(values), median)])
    place = numpy.arange(number)
    survival = numpy.ones(number)
    """Probability that the best evaluation is at this place or behind it."""
    curve = numpy.empty(budget)
    for done in range(budget):
        left = numpy.clip((number - place - done) / max(number - done, 1), 0, None)
        survival = survival * left
        curve[done] = ((survival - numpy.append(survival[1:], 0.0)) * padded).sum()
    return curve


def best_so_far(recording: Recording, values: Sequence[float | None], budget: int) -> Array:
    """The best value after each evaluation of a search, up to the budget."""
    results = numpy.array([math.inf if value is None else value for value in values[:budget]])
    curve = numpy.minimum.accumulate(results) if len(results) else numpy.array([math.inf])
    curve = numpy.where(numpy.isfinite(curve), curve, float(numpy.median(recording.ordered)))
    return numpy.concatenate([curve, numpy.full(budget - len(curve), curve[-1])])


def score(recording: Recording, curves: Sequence[Array], random: Array) -> float:
    """The score of the mean of several searches."""
    best = recording.ordered[0]
    distance = numpy.maximum(random - best, 1e-12 * max(abs(best), 1e-300))
    return float(numpy.mean((random - numpy.mean(curves, axis=0)) / distance))
