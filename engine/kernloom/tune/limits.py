"""Adaptive limits: what takes many times longer than the best point cannot win any more."""

from __future__ import annotations

import math
from dataclasses import replace

from kernloom.measure.trial import Trial

LEAST_S = 2.0
"""Shortest limit: starting a process on a busy machine may take a second."""


class Limits:
    """The time limit of a launch, from the duration of the best trial so far."""

    def __init__(self, factor: float | None, timeout: float) -> None:
        """`timeout`: the limit that the config sets, which is never exceeded."""
        self._factor = factor
        self._timeout = timeout
        self._best = math.inf
        self._seconds = math.inf

    def seen(self, trial: Trial, cost: float) -> None:
        """A trial that is good: the best one decides."""
        if cost < self._best and trial.seconds > 0:
            self._best, self._seconds = cost, trial.seconds

    @property
    def timeout(self) -> float | None:
        """The limit of a launch in seconds; None for the configured one."""
        if self._factor is None or not math.isfinite(self._seconds):
            return None
        # A whole trial takes longer than any launch of it.
        limit = max(LEAST_S, self._factor * self._seconds)
        # Few different values: each is another config.
        rounded = float(f"{2 ** math.ceil(math.log2(limit)):.6g}")
        return rounded if rounded < self._timeout else None

    def explained(self, trial: Trial) -> Trial:
        """The trial, with the reason of its limit if it was stopped by it."""
        limit = float(trial.config.get("timeout", self._timeout) or self._timeout)
        if trial.status != "timeout" or limit >= self._timeout:
            return trial
        why = (
            f"stopped after {limit:g} s: the whole trial of the best point took "
            f"{self._seconds:.2g} s (search.limit={self._factor:g})"
        )
        return replace(trial, message=f"{trial.message}\n{why}" if trial.message else why)
