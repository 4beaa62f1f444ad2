"""A Gaussian process over points of a search space, extended point by point.

The covariance of two points is exp(-sum(rate * |difference|)), with one rate per axis. The rates
and the noise maximise the likelihood together with a prior that keeps them moderate while there
are few results.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from kernloom.space.axes import Array

_STEPS = 15
"""Steps of the search for the rates."""
_RATE_BOUND = 4.0
"""Bound of the logarithm of a rate."""
_NOISE_BOUNDS = (-9.0, 0.0)
_USUAL_NOISE = math.log(0.01)
_JITTER = 1e-4


class GaussianProcess:
    """The process given some results, and its values at a fixed list of candidates."""

    def __init__(self, axes: int) -> None:
        self.rates = numpy.zeros(axes)
        """Logarithms."""
        self.noise = _USUAL_NOISE
        """Logarithm of the variance of the noise, as a share of the signal's."""
        self.size = 0
        """Number of points with results."""
        self._points = self._candidates = self._reduced = numpy.zeros((0, 0), numpy.float32)
        self._inverse = numpy.zeros((0, 0))
        """Inverse of the Cholesky factor of the covariance of the points."""
        self._variance = numpy.zeros(0)

    def fit(self, points: Array, targets: Array) -> None:
        """Choose the rates and the noise by sign-based gradient steps (Rprop)."""
        differences = numpy.abs(points[:, None, :] - points[None, :, :]).astype(float)
        count = len(points)
        flat = differences.reshape(count * count, -1).T
        usual = numpy.append(numpy.zeros(len(self.rates)), _USUAL_NOISE)
        now = numpy.append(self.rates, self.noise)
        step = numpy.full(len(now), 0.3)
        before = numpy.zeros(len(now))
        best = math.inf
        found = now
        for _ in range(_STEPS):
            rates, noise = numpy.exp(now[:-1]), math.exp(now[-1])
            covariance = numpy.exp(-(rates @ flat)).reshape(count, count)
            factor = numpy.linalg.cholesky(covariance + (noise + _JITTER) * numpy.eye(count))
            inverse_factor = numpy.linalg.inv(factor)
            inverse = inverse_factor.T @ inverse_factor
            weights = inverse @ targets
            scale = max(float(targets @ weights) / count, 1e-9)
            penalty = now - usual
            loss = (
                count / 2 * math.log(scale)
                + float(numpy.log(numpy.diag(factor)).sum())
                + 0.5 * float(penalty @ penalty)
            )
            if loss < best:
                best, found = loss, now.copy()
            # Gradient of the loss by each element of the covariance matrix, times 2.
            sensitivity = inverse - numpy.outer(weights, weights) / scale
            gradient = numpy.append(
                -0.5 * rates * (flat @ (sensitivity * covariance).ravel()),
                0.5 * noise * numpy.trace(sensitivity),
            )
            gradient += penalty
            same = numpy.sign(gradient) * numpy.sign(before)
            step = numpy.where(same > 0, numpy.minimum(step * 1.3, 1.0), step)
            step = numpy.where(same < 0, step * 0.5, step)
            before = gradient
            now = now - numpy.sign(gradient) * step
            now[:-1] = numpy.clip(now[:-1], -_RATE_BOUND, _RATE_BOUND)
            now[-1] = numpy.clip(now[-1], *_NOISE_BOUNDS)
        self.rates, self.noise = found[:-1], float(found[-1])

    def condition(self, points: Array, candidates: Array, capacity: int) -> None:
        """Start anew with the points that have results, and the candidates to predict; `capacity`:
        the number of points to have room for."""
        self._points = numpy.zeros((capacity, points.shape[1]), numpy.float32)
        self._candidates = candidates
        self._reduced = numpy.zeros((capacity, len(candidates)), numpy.float32)
        self._inverse = numpy.zeros((capacity, capacity))
        count = self.size = len(points)
        self._points[:count] = points
        within = self._covariance(points, points).astype(float)
        factor = numpy.linalg.cholesky(within + self._diagonal() * numpy.eye(count))
        inverse = numpy.linalg.inv(factor)
        self._inverse[:count, :count] = inverse
        crossed = self._covariance(points, candidates)
        self._reduced[:count] = inverse.astype(numpy.float32) @ crossed
        self._variance = 1 - (self._reduced[:count] ** 2).sum(axis=0)

    @property
    def is_full(self) -> bool:
        return self.size == len(self._points)

    def append(self, point: Array) -> None:
        """Add a point with a result."""
        count = self.size
        line = point[None, :].astype(numpy.float32)
        to_points = self._covariance(line, self._points[:count])[0].astype(float)
        inverse = self._inverse[:count, :count]
        row = inverse @ to_points
        corner = math.sqrt(max(1 + self._diagonal() - float(row @ row), 1e-6))
        reduced = self._covariance(line, self._candidates)[0]
        reduced -= row.astype(numpy.float32) @ self._reduced[:count]
        reduced /= numpy.float32(corner)
        self._points[count] = point
        self._reduced[count] = reduced
        self._inverse[count, :count] = -(row @ inverse) / corner
        self._inverse[count, count] = 1 / corner
        self._variance -= reduced**2
        self.size += 1

    def mean(self, targets: Array) -> tuple[Array, float]:
        """The mean at each candidate, and the variance of the signal."""
        weights = self._inverse[: self.size, : self.size] @ targets
        scale = max(float(weights @ weights) / self.size, 1e-6)
        mean: Array = weights.astype(numpy.float32) @ self._reduced[: self.size]
        return mean, scale

    def deviation(self, scale: float) -> Array:
        """The standard deviation at each candidate."""
        deviation: Array = numpy.sqrt(numpy.maximum(self._variance, 1e-9) * scale)
        return deviation

    def _diagonal(self) -> float:
        return math.exp(self.noise) + _JITTER

    def _covariance(self, some: Array, others: Array) -> Array:
        rates = numpy.exp(self.rates).astype(numpy.float32)
        distance = numpy.zeros((len(some), len(others)), numpy.float32)
        for axis, rate in enumerate(rates):
            distance += rate * numpy.abs(some[:, axis, None] - others[None, :, axis])
        covariance: Array = numpy.exp(-distance)
        return covariance
