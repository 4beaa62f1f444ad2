"""Objectives of a study: what is minimised, computed from the metrics of a trial."""

from __future__ import annotations

import ast
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.base.errors import ConfigError, ExpressionError, nearest
from kernloom.base.expressions import evaluate, parse
from kernloom.base.gauges import GAUGES, Gauge, Metric, metric_named, ranking_gauge
from kernloom.base.lookup import MISSING, lookup
from kernloom.base.units import number_text
from kernloom.measure.trial import Trial

KEY = "search.objective"
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)


CONSTANT = ("samples", "processes", "inner", "transfer_bytes")
"""Metrics that rounds do not have one by one, and that noise does not change."""


class Objective(ABC):
    """One number of a trial that a study minimises."""

    text: str
    """As it is asked for."""

    def cost(self, trial: Trial) -> float | None:
        """Smaller is better; None for a trial that failed."""
        return self.cost_of(trial.metrics) if trial.good else None

    @abstractmethod
    def cost_of(self, metrics: Mapping[str, Any]) -> float | None:
        """The same from metrics; None if it is no finite number."""

    @abstractmethod
    def shown(self, trial: Trial) -> str:
        """The value for people."""

    @abstractmethod
    def names(self, metrics: Mapping[str, Any]) -> frozenset[str]:
        """The metrics that it is computed from."""

    def gauge(self, trial: Trial) -> Gauge | None:
        """The gauge that is minimised, if it is one: its trials have intervals."""
        return None

    def is_exact(self, trial: Trial) -> bool:
        """Whether every run gives the same value, so that any difference is real."""
        names = self.names(trial.metrics)
        return bool(names) and all(self.is_constant(name, trial.metrics) for name in names)

    @staticmethod
    def is_constant(name: str, metrics: Mapping[str, Any]) -> bool:
        """Whether a metric is the same in every run."""
        exact = name in CONSTANT or name in metrics.get("deterministic", ())
        return exact or any(g.exact and g.name == name for g in GAUGES.all((name,)))


@dataclass(frozen=True)
class RankingObjective(Objective):
    """The gauge that trials of the target are ranked by."""

    text: str = ""

    def cost_of(self, metrics: Mapping[str, Any]) -> float | None:
        gauge = ranking_gauge(metrics)
        return _finite(gauge.cost(float(metrics[gauge.name]))) if gauge else None

    def shown(self, trial: Trial) -> str:
        gauge = self.gauge(trial)
        return gauge.with_label(trial.metrics[gauge.name]) if gauge else ""

    def names(self, metrics: Mapping[str, Any]) -> frozenset[str]:
        gauge = ranking_gauge(metrics)
        return frozenset((gauge.name,) if gauge else ())

    def gauge(self, trial: Trial) -> Gauge | None:
        return ranking_gauge(trial.metrics)


@dataclass(frozen=True)
class MetricObjective(Objective):
    """A metric by name; one where more is better is maximised."""

    text: str

    def _value(self, metrics: Mapping[str, Any]) -> float:
        found = lookup(metrics, self.text.split("."))
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise _unknown(self.text, metrics, found)
        return float(found)

    @property
    def _metric(self) -> Metric | None:
        return metric_named(self.text)

    def cost_of(self, metrics: Mapping[str, Any]) -> float | None:
        value, metric = self._value(metrics), self._metric
        return _finite(metric.cost(value) if metric else value)

    def shown(self, trial: Trial) -> str:
        value, metric = self._value(trial.metrics), self._metric
        return metric.with_label(value) if metric else number_text(value)

    def names(self, metrics: Mapping[str, Any]) -> frozenset[str]:
        return frozenset((self.text,))

    def gauge(self, trial: Trial) -> Gauge | None:
        ranking = ranking_gauge(trial.metrics)
        return ranking if ranking and ranking.name == self.text else None


@dataclass(frozen=True)
class FormulaObjective(Objective):
    """A formula of metrics, minimised."""

    text: str

    def _value(self, metrics: Mapping[str, Any]) -> float:
        for name in parse(self.text).names:
            value = metrics.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise _unknown(name, metrics, value)
        try:
            found = evaluate(self.text, metrics, key=KEY)
        except ExpressionError as error:
            if "division by zero" in error.message:
                return math.inf
            raise
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise ConfigError(f"'{self.text}' gives {found!r}, not a number", key=KEY)
        return float(found)

    def cost_of(self, metrics: Mapping[str, Any]) -> float | None:
        return _finite(self._value(metrics))

    def shown(self, trial: Trial) -> str:
        return number_text(self._value(trial.metrics))

    def names(self, metrics: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(parse(self.text).names)


def objectives_of(asked: str | Sequence[str] | None) -> tuple[Objective, ...]:
    """The objectives of a study; their names are checked when the first trial has ended."""
    if asked is None:
        return (RankingObjective(),)
    texts = (asked,) if isinstance(asked, str) else tuple(asked)
    if not texts:
        raise ConfigError("an empty list has no objective", key=KEY, hint="Name a metric.")
    if len(set(texts)) < len(texts):
        raise ConfigError("an objective is named twice", key=KEY)
    return tuple(map(_objective, texts))


def _objective(text: str) -> Objective:
    if _NAME.fullmatch(text):
        return MetricObjective(text)
    try:
        names = parse(text).names
    except ExpressionError as error:
        raise ConfigError(error.message, key=KEY, hint=error.hint) from None
    if isinstance(parse(text).tree, ast.Tuple | ast.List):
        raise ConfigError(
            f"'{text}' is no formula", key=KEY, hint=f"Several objectives: objective=[{text}]."
        )
    if not names:
        raise ConfigError(f"'{text}' names no metric, so every point would be as good", key=KEY)
    return FormulaObjective(text)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _unknown(name: str, metrics: Mapping[str, Any], found: Any) -> ConfigError:
    if isinstance(found, Mapping):
        return ConfigError(
            f"'{name}' is a group of metrics", key=KEY, hint=nearest(name, [*_names(metrics)])
        )
    if found is MISSING or found is None:
        return ConfigError(
            f"the trials have no metric '{name}'", key=KEY, hint=nearest(name, [*_names(metrics)])
        )
    return ConfigError(f"the metric '{name}' is {found!r}, not a number", key=KEY)


def _names(metrics: Mapping[str, Any], prefix: str = "") -> list[str]:
    names = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            names += _names(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            names.append(prefix + name)
    return names
