"""Trials as rows of chosen keys: columns, groups with their best and median, pivot tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernloom.base.errors import UsageError, nearest
from kernloom.base.units import three_digits, time_text
from kernloom.measure.ranking import RANKED_BY
from kernloom.measure.trial import Trial
from kernloom.store.keys import COLUMNS, SOURCE, Key, parse_key, value_text
from kernloom.store.rows import name_in

LARGER_IS_BETTER = ("gflops", "gbytes_per_s", "roof_fraction", "ratio")
"""Of a metric whose name ends so the largest is the best; of any other, the smallest."""
RATES = ("gflops", "gbytes_per_s")
"""Metrics that follow from a time and from what the workload states as its cost."""
_NOT_SHOWN = ("attempt", "version")
_IN_CONFIG = {"arch": ("arch", "name"), "toolchain": ("toolchain", "name")}


@dataclass(frozen=True)
class Answer:
    """A table of values: for people as text, for programs as they are."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    units: tuple[str, ...]
    """The metric that a column shows, or nothing."""
    note: str = ""

    def documents(self) -> list[dict[str, Any]]:
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def empty(self, keys: Sequence[Key]) -> list[Key]:
        """Those of the keys of its columns that have no value in any row."""
        return [key for at, key in enumerate(keys) if all(row[at] is None for row in self.rows)]


def parse_keys(text: str, flag: str) -> list[Key]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"--{flag} needs keys", hint=f"For instance: --{flag} workload,toolchain")
    for name in names:
        if name in _NOT_SHOWN:
            raise UsageError(
                f"--{flag} {name}: this can be filtered and sorted by, but not shown",
                hint="--history lists every attempt.",
            )
    return [parse_key(name) for name in names]


def value_of(trial: Trial, key: Key) -> Any:
    """The value of a key, or None; of a short name that several steps have, all of them."""
    if key.text == SOURCE:
        return trial.source or None
    if key.column:
        name = next(name for name, column in COLUMNS.items() if column == key.column)
        if name in _IN_CONFIG:
            return name_in(trial.config, *_IN_CONFIG[name])
        if name == "variant":
            return name_in(trial.config, "target", "variant")
        return getattr(trial, name)
    values = key.values(_Documents(trial))
    if not values:
        return None
    found = values[0] if len({value_text(value) for value in values}) == 1 else values
    return found.get("name", found) if isinstance(found, Mapping) else found


class _Documents(dict[str, Any]):
    """The documents of a trial by name."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self._trial = trial

    def __missing__(self, name: str) -> Any:
        return getattr(self._trial, name)


def columns(trials: Iterable[Trial], keys: Sequence[Key]) -> Answer:
    """One row for each trial, one column for each key."""
    rows = tuple(tuple(value_of(trial, key) for key in keys) for trial in trials)
    return Answer(tuple(key.text for key in keys), rows, tuple(key.text for key in keys))


def chosen_metric(trials: Sequence[Trial], asked: str) -> Key:
    """The metric that was asked for, or the one by which these trials are ranked."""
    if asked:
        return parse_key(asked)
    names = (name for name in RANKED_BY if any(name in trial.metrics for trial in trials))
    return parse_key(next(names, RANKED_BY[-1]))


def groups(trials: Sequence[Trial], keys: Sequence[Key], metric: Key) -> Answer:
    """Trials with equal values together: how many, and of the good ones best and median."""
    members = _together(trials, keys)
    rows = []
    for values in _sorted(members):
        inside = members[values]
        numbers = _numbers(inside, metric)
        best = _best(numbers, metric) if numbers else None
        middle = statistics.median(numbers) if numbers else None
        rows.append((*values, len(inside), sum(t.good for t in inside), best, middle))
    names = tuple(key.text for key in keys)
    return Answer(
        (*names, "trials", "verified", "best", "median"),
        tuple(rows),
        (*("",) * (len(names) + 2), metric.text, metric.text),
        f"best (the {_direction(metric)}) and median of {metric.text} of the verified trials",
    )


def pivot(
    trials: Sequence[Trial], down: Sequence[Key], across: Sequence[Key], metric: Key
) -> Answer:
    """The best of a metric for the values of some keys, in a column for each of those of others."""
    members = _together([trial for trial in trials if trial.good], (*down, *across))
    headings = _sorted({values[len(down) :] for values in members})
    rows = []
    for first in _sorted({values[: len(down)] for values in members}):
        cells: list[Any] = [*first]
        for heading in headings:
            numbers = _numbers(members.get((*first, *heading), ()), metric)
            cells.append(_best(numbers, metric) if numbers else None)
        rows.append(tuple(cells))
    names = tuple(" ".join(map(_heading, across, values)) for values in headings)
    by = ", ".join(key.text for key in down), ", ".join(key.text for key in across)
    return Answer(
        (*(key.text for key in down), *names),
        tuple(rows),
        (*("",) * len(down), *(metric.text,) * len(names)),
        f"{metric.text} by {by[0]} and {by[1]}: the {_direction(metric)} of the "
        "verified trials in each cell",
    )


def lack_of(trials: Sequence[Trial], metric: Key) -> str:
    """Why none of these trials has a metric; nothing, if one has it."""
    good = [trial for trial in trials if trial.good]
    if not trials or _numbers(good, metric):
        return ""
    if not good:
        return "none of these trials verified"
    rate = metric.text.removeprefix("metrics.") in RATES
    timed = any("median_ns" in trial.metrics for trial in good)
    why = ": the workload states no cost" if rate and timed else ""
    return f"no trial has {metric.text}{why}"


def ordered(answer: Answer, sort: str) -> Answer:
    """The rows by one of the columns, `-` before its name for the largest first."""
    if not sort:
        return answer
    name = sort.removeprefix("-")
    if name not in answer.headings:
        raise UsageError(
            f"--sort {sort}: the answer has no such column", hint=nearest(name, answer.headings)
        )
    at = answer.headings.index(name)
    present = [row for row in answer.rows if row[at] is not None]
    absent = [row for row in answer.rows if row[at] is None]
    present.sort(key=lambda row: _order(row[at]), reverse=sort.startswith("-"))
    return replace(answer, rows=tuple(present + absent))


def _heading(key: Key, value: Any) -> str:
    return f"{key.text.rpartition('.')[2]}={'' if value is None else value_text(value)}"


def _together(trials: Sequence[Trial], keys: Sequence[Key]) -> dict[tuple[Any, ...], list[Trial]]:
    members: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in trials:
        values = tuple(_hashable(value_of(trial, key)) for key in keys)
        members.setdefault(values, []).append(trial)
    return members


def _hashable(value: Any) -> Any:
    return value_text(value) if isinstance(value, (list, Mapping)) else value


def _sorted(several: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(several, key=lambda values: [_order(value) for value in values])


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers before text, what is missing last."""
    if isinstance(value, (int, float)):
        return (0, value, "")
    return (2, 0, "") if value is None else (1, 0, str(value))


def _numbers(trials: Iterable[Trial], metric: Key) -> list[float]:
    values = (value_of(trial, metric) for trial in trials if trial.good)
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _direction(metric: Key) -> str:
    return "largest" if metric.text.endswith(LARGER_IS_BETTER) else "smallest"


def _best(numbers: Sequence[float], metric: Key) -> float:
    return max(numbers) if _direction(metric) == "largest" else min(numbers)


def cell_text(value: Any, metric: str) -> str:
    """A value as people read it; times with their unit."""
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if metric.endswith("_ns"):
            return time_text(value)
        return three_digits(value) if isinstance(value, float) else str(value)
    return value_text(value)
