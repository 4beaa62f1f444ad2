"""Claims of a recipe: one line of text each, such as `vs openblas >= 1.05 within 3%`.

    CLAIM = SIDE OP SIDE [on KEY=VALUE ...] [within PERCENT%]
    SIDE  = FACTOR [* or / FACTOR]
    FACTOR = NUMBER | METRIC[(KEY=VALUE, ...)] | vs PEER

A claim holds if it holds on every trial that it is about: those with the values of `on` and, for
a metric with values of its own, every pair of trials that differ in just these values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.gauges import GAUGES, RATES, USUAL_METRICS, metric_named
from kernloom.config.sweeps import POINT as NAMED
from kernloom.measure.trial import Trial

Operator = Literal[">=", "<=", "==", ">", "<"]
MAX_LENGTH = 500
COMPILER = "compiler"
"""Key of the version of the compiler that a trial was built with."""

_OPERATOR = re.compile(r"(>=|<=|==|>|<)")
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_WITHIN = re.compile(r"\s+within\s+(\d+(?:\.\d+)?)\s*%\s*$")
_ON = re.compile(r"\s+on\s+(.+)$")
_PAIR = re.compile(r"([A-Za-z_][\w.]*)=([\w.+-]+)")
_VS = re.compile(r"vs\s+([A-Za-z]\w*)")
_METRIC = re.compile(r"([A-Za-z_][\w.]*)\s*(?:\(([^()]*)\))?")
_EXAMPLES = "For instance: vs openblas >= 1.05, instructions == 133440 on target=aarch64."


@dataclass(frozen=True)
class Term:
    """One measured number of a claim."""

    metric: str
    """Key in the metrics of a trial; '' for the ratio to a peer."""
    peer: str = ""
    only: tuple[tuple[str, str], ...] = ()
    """Key -> value of the trials that it is read from."""

    @property
    def text(self) -> str:
        if self.peer:
            return f"vs {self.peer}"
        chosen = ", ".join(f"{key}={value}" for key, value in self.only)
        return f"{self.metric}({chosen})" if chosen else self.metric


@dataclass(frozen=True)
class Side:
    """One side of a claim: a number times the terms above the line, over those below it."""

    number: float = 1.0
    above: tuple[Term, ...] = ()
    below: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        return (*self.above, *self.below)


@dataclass(frozen=True)
class Claim:
    """A statement about the trials of a recipe."""

    text: str
    left: Side
    operator: Operator
    right: Side
    on: tuple[tuple[str, str], ...] = ()
    within: float = 0.0
    """Allowed variation, as a share."""

    @property
    def terms(self) -> tuple[Term, ...]:
        return (*self.left.terms, *self.right.terms)


def parse_claim(text: Any, *, key: str) -> Claim:
    """The claim in a line of text."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ConfigError(f"a claim is a text of at most {MAX_LENGTH} characters", key=key)
    rest, within = text.strip(), 0.0
    on: tuple[tuple[str, str], ...] = ()
    if found := _WITHIN.search(rest):
        rest, within = rest[: found.start()], float(found[1]) / 100
    if found := _ON.search(rest):
        rest, on = rest[: found.start()], _pairs(found[1], found[1].split(), key)
    parts = _OPERATOR.split(rest)
    if len(parts) != 3:
        raise ConfigError(
            f"claim '{text}' does not compare two sides with one of >= <= == > <",
            key=key,
            hint=_EXAMPLES,
        )
    left, operator, right = parts
    claim = Claim(text.strip(), _side(left, key), operator, _side(right, key), on, within)  # type: ignore[arg-type]
    _check(claim, key)
    return claim


def _check(claim: Claim, key: str) -> None:
    count = len(claim.terms)
    if not 1 <= count <= 2:
        raise ConfigError(
            f"claim '{claim.text}' has {count} measured numbers; one or two can be judged", key=key
        )
    if claim.within >= 1:
        raise ConfigError("a variation of 100% or more allows anything", key=key)
    for side in (claim.left, claim.right):
        if not side.number or not math.isfinite(side.number):
            raise ConfigError(
                f"claim '{claim.text}' compares with {side.number:g}; only ratios can be judged",
                key=key,
            )
    if claim.operator == "==" and not claim.within and _is_sampled(claim):
        raise ConfigError(
            f"claim '{claim.text}': a measured time never equals a number",
            key=key,
            hint="Say how far it may vary: ... within 5%.",
        )


def _is_sampled(claim: Claim) -> bool:
    exact = {gauge.name for gauge in GAUGES.all() if gauge.exact}
    timed = {key for gauge in GAUGES.all() if not gauge.exact for key in gauge.keys}
    timed |= {rate.name for rate in RATES}
    return any(term.peer or term.metric in timed - exact for term in claim.terms)


def _side(text: str, key: str) -> Side:
    number, above, below = 1.0, list[Term](), list[Term]()
    for sign, factor in _factors(text):
        if _NUMBER.fullmatch(factor):
            value = float(factor)
            if not math.isfinite(value):
                raise ConfigError(f"'{factor}' is no number that can be compared", key=key)
            if not value and sign == "/":
                raise ConfigError(f"'{text.strip()}' divides by 0", key=key)
            number = number * value if sign == "*" else number / value
        else:
            (above if sign == "*" else below).append(_term(factor, key))
    return Side(number, tuple(above), tuple(below))


def _factors(text: str) -> Iterator[tuple[str, str]]:
    """Each factor of a side, with the sign before it."""
    sign = "*"
    for part in re.split(r"([*/])", text):
        if part in ("*", "/"):
            sign = part
        else:
            yield sign, part.strip()


def _term(text: str, key: str) -> Term:
    if found := _VS.fullmatch(text):
        return Term("", peer=found[1])
    found = _METRIC.fullmatch(text)
    if not found:
        raise ConfigError(f"'{text}' is no metric, number or peer", key=key, hint=_EXAMPLES)
    name, inside = found.groups()
    if metric_named(name, scan=False) is None and name not in USUAL_METRICS:
        gauges = [gauge.name for gauge in GAUGES.all((name,))]
        if name not in gauges:
            known = [*gauges, *USUAL_METRICS, "roof_fraction"]
            raise ConfigError(f"unknown metric '{name}'", key=key, hint=nearest(name, known))
    pairs = [word.strip() for word in inside.split(",")] if inside and inside.strip() else []
    return Term(name, only=_pairs(text, pairs, key))


def _pairs(text: str, words: Sequence[str], key: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for word in words:
        found = _PAIR.fullmatch(word)
        if not found:
            raise ConfigError(f"'{word}' in '{text}' is not key=value", key=key)
        pairs.append((found[1], found[2]))
    return tuple(pairs)


@dataclass(frozen=True)
class Described:
    """A trial with the values by which claims find it."""

    trial: Trial
    values: Mapping[str, frozenset[str]]
    """Key -> its values as text: several if steps differ in a tunable."""

    def has(self, wanted: Sequence[tuple[str, str]]) -> bool:
        return all(
            any(_same(key, found, value) for found in self.values.get(key, ()))
            for key, value in wanted
        )

    def others(self, keys: Sequence[str]) -> frozenset[tuple[str, frozenset[str]]]:
        """The swept values except those of some keys, to find trials that differ in these only."""
        swept = [name for name in self.values if name.startswith(POINT)]
        hidden = {name for name in swept if any(_ends(name, key) for key in (*keys, NAMED))}
        return frozenset((name, self.values[name]) for name in swept if name not in hidden)


POINT = "point:"
"""Prefix of the swept keys of a trial among the values of `Described`."""


def described(trial: Trial, compiler: str = "") -> Described:
    """A trial with its values: names, swept keys by their full and their last name, tunables."""
    values: dict[str, set[str]] = {}

    def add(key: str, value: Any) -> None:
        values.setdefault(key, set()).add(_text(value))

    add("workload", trial.workload)
    add("case", trial.case)
    add("target", trial.target)
    for group in ("toolchain", "runtime", "arch", "pipeline", "measure"):
        section = trial.config.get(group)
        if isinstance(section, Mapping):
            add(group, section.get("name"))
    target = trial.config.get("target")
    if isinstance(target, Mapping):
        add("variant", target.get("variant"))
    for key, value in trial.point.items():
        add(POINT + key, value)
        for name in {key, key.rpartition(".")[2]}:
            values[name] = {_text(value)}
    for steps in trial.params.values():
        for tunables in steps.values():
            for name, value in tunables.items():
                if not any(_ends(key, name) for key in trial.point):
                    add(name, value)
    if compiler:
        add(COMPILER, compiler)
    return Described(trial, {key: frozenset(found) for key, found in values.items()})


def _ends(name: str, key: str) -> bool:
    name = name.removeprefix(POINT)
    return name == key or name.rpartition(".")[2] == key


def _same(key: str, value: str, wanted: str) -> bool:
    """Whether a value is the wanted one; `compiler=14` is any 14.x."""
    if value == wanted or (key == COMPILER and value.startswith(f"{wanted}.")):
        return True
    try:
        return float(value) == float(wanted)
    except ValueError:
        return False


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
