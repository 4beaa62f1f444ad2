"""Samplers of Optuna, where it is installed.

Optuna knows no constraints between parameters. A suggestion that is invalid or known becomes the
nearest valid new point, and Optuna is told that point's result instead.
"""

from __future__ import annotations

import importlib
import math
import warnings
from typing import Any, ClassVar

import numpy

from kernloom.base.errors import UnavailableError
from kernloom.tune.candidates import Candidates
from kernloom.tune.indexed import IndexedStrategy
from kernloom.tune.strategy import Search

_PENALTY = 2.0
"""A failed point counts as this multiple of the worst value."""


class OptunaSearch(IndexedStrategy):
    """A search by the sampler that a subclass names."""

    sampler: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @classmethod
    def check_available(cls) -> None:
        cls._imported()

    @classmethod
    def _imported(cls) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return importlib.import_module("optuna")
        except ImportError:
            raise UnavailableError(
                f"strategy '{cls.name}' needs the package optuna",
                hint="Install it beside Kernloom: .venv/bin/python -m pip install optuna",
            ) from None

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._optuna = self._imported()
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self._candidates = Candidates(search.space, search.seed)
        self._open = numpy.ones(self._candidates.size, dtype=bool)
        integer = getattr(self._optuna.distributions, "IntDistribution", None)
        integer = integer or self._optuna.distributions.IntUniformDistribution
        self._distributions = {
            str(number): integer(0, size - 1)
            for number, size in enumerate(search.space.sizes)
            if size > 1
        }
        self._trials: dict[int, Any] = {}
        """Optuna's trials of points that were asked."""
        self._worst = -math.inf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = getattr(self._optuna.samplers, self.sampler)
            self._study = self._optuna.create_study(
                sampler=sampler(seed=search.seed, **self.options)
            )
        for index, value in self.results.items():
            self.learn(index, value)

    def propose(self) -> int | None:
        if not self._distributions:
            return self.random_point()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask(self._distributions)
        ranks = [int(trial.params.get(str(n), 0)) for n in range(len(self.space.axes))]
        if self.space.allowed(numpy.array([ranks]))[0]:
            index = self.space.index_at(ranks)
            if index not in self.asked:
                self._trials[index] = trial
                return index
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return self._nearest(ranks)

    def learn(self, index: int, value: float | None) -> None:
        if value is not None:
            self._worst = max(self._worst, value)
        if value is None:
            if self._worst == -math.inf:
                return
            value = self._worst + (_PENALTY - 1) * abs(self._worst)
        trial = self._trials.pop(index, None)
        if trial is not None:
            self._study.tell(trial, value)
            return
        ranks = self.space.ranks_at(index)
        create = self._optuna.trial.create_trial
        params = {name: ranks[int(name)] for name in self._distributions}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.add_trial(
                create(params=params, distributions=self._distributions, value=value)
            )

    def _nearest(self, ranks: list[int]) -> int | None:
        self._open[self._candidates.rows(self.asked)] = False
        if not self._open.any() and not self._candidates.complete:
            self._candidates.select([self.space.index_at(ranks)])
            self._open = numpy.ones(self._candidates.size, dtype=bool)
            self._open[self._candidates.rows(self.asked)] = False
        if not self._open.any():
            return self.random_point()
        at = self._candidates.encoded([self.space.index_at(ranks)])
        distance = numpy.abs(self._candidates.encoding - at).sum(axis=1)
        return self._candidates.indices[int(numpy.argmin(numpy.where(self._open, distance, 1e9)))]


class OptunaTPE(OptunaSearch):
    name = "optuna_tpe"
    about = "Optuna's tree-structured Parzen estimator (needs the package optuna)"
    sampler = "TPESampler"
    options = {"multivariate": True, "constant_liar": True}


class OptunaGenetic(OptunaSearch):
    name = "optuna_nsga2"
    about = "Optuna's genetic algorithm NSGA-II (needs the package optuna)"
    sampler = "NSGAIISampler"
