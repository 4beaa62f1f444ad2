"""Trials as rows of chosen keys: columns, groups with their best and median, pivot tables."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernloom.base.errors import UsageError, nearest
from kernloom.base.gauges import RATES, TIME, USUAL_METRICS, Gauge, metric_named, metric_rank
from kernloom.base.units import count, number_text
from kernloom.measure.ranking import metric_of, not_ranked, not_ranked_remark
from kernloom.measure.trial import Trial
from kernloom.store.keys import COLUMNS, SOURCE, Key, Meanings, parse_key, value_text
from kernloom.store.rows import name_in

_NOT_SHOWN = ("attempt", "version")
_IN_CONFIG = {"arch": ("arch", "name"), "toolchain": ("toolchain", "name")}


@dataclass(frozen=True)
class Answer:
    """A table of values: text for people, plain values for programs."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    metrics: tuple[tuple[str, ...], ...]
    """The metric of each cell, or ''."""
    note: str = ""
    remarks: tuple[str, ...] = ()
    """Caveats about the values."""
    named: Mapping[int, str] = field(default_factory=dict)
    """Column -> heading of an extra column that names its metric, for programs: their numbers have
    no units."""

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Headings and rows for programs."""
        headings = [[*self._naming(at), name] for at, name in enumerate(self.headings)]
        rows = []
        for row, metrics in zip(self.rows, self.metrics, strict=True):
            cells = enumerate(zip(row, metrics, strict=True))
            shown = [[metric or None, v] if at in self.named else [v] for at, (v, metric) in cells]
            rows.append([value for some in shown for value in some])
        return [name for some in headings for name in some], rows

    def _naming(self, at: int) -> list[str]:
        return [self.named[at]] if at in self.named else []

    def documents(self) -> list[dict[str, Any]]:
        headings, rows = self.table()
        return [dict(zip(headings, row, strict=True)) for row in rows]

    def empty(self, keys: Sequence[Key]) -> list[Key]:
        """The keys whose columns are empty."""
        return [key for at, key in enumerate(keys) if all(row[at] is None for row in self.rows)]


@dataclass(slots=True)
class Group:
    """Trials with equal values of some keys, reduced to what a row or cell of an answer needs."""

    trials: int = 0
    verified: int = 0
    not_ranked: Counter[str] = field(default_factory=Counter)
    """Reason -> number of verified trials that are not ranked."""
    ranked_by: Counter[str] = field(default_factory=Counter)
    """Metric -> number of verified trials that are ranked by it."""
    numbers: dict[str, list[float]] = field(default_factory=dict)
    """Metric -> its values in the verified trials."""


@dataclass(frozen=True)
class _Measured:
    """The values of a metric in some trials."""

    metric: Key
    numbers: Sequence[float]
    left_out: int = 0
    """Number of verified trials that are ranked by another metric."""
    not_ranked: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, group: Group, asked: Key | None) -> _Measured:
        """The values of the requested metric, or of the one that most trials are ranked by."""
        if asked:
            numbers = group.numbers.get(asked.text, ())
            return cls(asked, numbers, not_ranked=group.not_ranked)
        counts = group.ranked_by
        if not counts:
            return cls(_DEFAULT, (), not_ranked=group.not_ranked)
        chosen = _most(counts)
        left_out = counts.total() - counts[chosen]
        return cls(parse_key(chosen), group.numbers.get(chosen, ()), left_out, group.not_ranked)

    @property
    def best(self) -> float | None:
        return _best(self.numbers, self.metric) if self.numbers else None

    @property
    def median(self) -> float | None:
        if not self.numbers:
            return None
        middle = statistics.median(self.numbers)
        whole = all(isinstance(number, int) for number in self.numbers)
        return int(middle) if whole and middle == int(middle) else middle


class Summary:
    """Trials in groups of equal values of some keys; holds numbers, no trials.

    `asked` is the metric whose values are kept, else the one that each trial is ranked by.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        keys: Sequence[Key] = (),
        asked: Key | None = None,
        *,
        only_verified: bool = False,
    ) -> None:
        self.keys, self.asked = tuple(keys), asked
        self.groups: dict[tuple[Any, ...], Group] = {}
        self.trials = self.verified = 0
        self._unknown = dict.fromkeys((*keys, *([asked] if asked else [])))
        self._timed = False
        self._metrics: dict[str, Key] = {}
        meanings = Meanings()
        for trial in trials:
            self.trials += 1
            self.verified += trial.good
            self._timed = self._timed or (trial.good and TIME.name in trial.metrics)
            if trial.good or not only_verified:
                values = tuple(_hashable(value_of(trial, key, meanings)) for key in keys)
                self._saw(keys, values)
                group = self.groups.get(values)
                if group is None:
                    group = self.groups[values] = Group()
                self._add(trial, group)

    def unknown_keys(self) -> list[Key]:
        """The keys, the requested metric among them, that no counted trial has."""
        return list(self._unknown)

    def missing_metric_reason(self) -> str:
        """Why no trial has the metric; empty if one has it."""
        groups = self.groups.values()
        if not self.trials or any(any(group.numbers.values()) for group in groups):
            return ""
        if not self.verified:
            return "none of these trials verified"
        if sum(group.not_ranked.total() for group in groups) == self.verified:
            return ""  # a remark explains it
        if self.asked is None:
            return "no trial has a metric that trials are ranked by"
        rate = self.asked.text.removeprefix("metrics.") in {rate.name for rate in RATES}
        why = ": the workload states no cost" if rate and self._timed else ""
        return f"no trial has {self.asked.text}{why}"

    def _add(self, trial: Trial, group: Group) -> None:
        group.trials += 1
        if not trial.good:
            return
        group.verified += 1
        if reason := not_ranked(trial):
            group.not_ranked[reason] += 1
            return
        if self.asked is None:
            if not (name := metric_of(trial)):
                return
            group.ranked_by[name] += 1
            metric = self._metrics.setdefault(name, parse_key(name))
        else:
            metric = self.asked
        value = value_of(trial, metric)
        self._saw((metric,), (value,))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            group.numbers.setdefault(metric.text, []).append(value)

    def _saw(self, keys: Iterable[Key], values: Iterable[Any]) -> None:
        if self._unknown:
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    self._unknown.pop(key, None)


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


def value_of(trial: Trial, key: Key, meanings: Meanings | None = None) -> Any:
    """The value of a key, or None; for a short name of several steps, all their values.

    `meanings` are those of short names in other trials of the same answer.
    """
    if key.text == SOURCE:
        return trial.source or None
    if key.column:
        name = next(name for name, column in COLUMNS.items() if column == key.column)
        if name in _IN_CONFIG:
            return name_in(trial.config, *_IN_CONFIG[name])
        if name == "variant":
            return name_in(trial.config, "target", "variant")
        return getattr(trial, name)
    values = (meanings or Meanings()).values(key, _Documents(trial))
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
    meanings = Meanings()
    rows = tuple(tuple(value_of(trial, key, meanings) for key in keys) for trial in trials)
    names = tuple(key.text for key in keys)
    return Answer(names, rows, (names,) * len(rows))


def objectives(trials: Iterable[Trial]) -> dict[str, str]:
    """Target -> the metric that most of its trials are ranked by."""
    seen: dict[str, Counter[str]] = {}
    for trial in trials:
        if trial.good and (metric := metric_of(trial)):
            seen.setdefault(trial.target, Counter())[metric] += 1
    return {target: _most(counts) for target, counts in seen.items()}


def groups(summary: Summary) -> Answer:
    """One row for each group: its number of trials, and the best and median of the good ones, for
    the requested metric or the one that the group's trials are ranked by."""
    asked = summary.asked
    found = {
        values: _Measured.of(summary.groups[values], asked) for values in _sorted(summary.groups)
    }
    rows, metrics = [], []
    names = tuple(key.text for key in summary.keys)
    for values, measured in found.items():
        group = summary.groups[values]
        rows.append((*values, group.trials, group.verified, measured.best, measured.median))
        metric = measured.metric.text if measured.numbers else ""
        metrics.append((*("",) * (len(names) + 2), metric, metric))
    several = _metrics_in(found.values())
    if len(several) > 1:
        shown = ", ".join(f"{key.text} (the {_direction(key)})" for key in several)
        note = f"best and median of what the verified trials of a group are ranked by: {shown}"
    else:
        about = asked or next(iter(several), _DEFAULT)
        note = f"best (the {_direction(about)}) and median of {about.text} of the verified trials"
    return Answer(
        (*names, "trials", "verified", "best", "median"),
        tuple(rows),
        tuple(metrics),
        note,
        _remarks("group", found.values()),
        {len(names) + 2: "metric"},
    )


def pivot(summary: Summary, rows_by: int) -> Answer:
    """The best of a metric in the verified trials: the first `rows_by` keys down, the others
    across; without a requested metric, the one that a cell's trials are ranked by."""
    asked, down, across = summary.asked, summary.keys[:rows_by], summary.keys[rows_by:]
    found = {
        values: _Measured.of(group, asked)
        for values, group in summary.groups.items()
        if group.verified
    }
    nothing = _Measured(asked or _DEFAULT, ())
    headings = _sorted({values[rows_by:] for values in found})
    rows, metrics = [], []
    for first in _sorted({values[:rows_by] for values in found}):
        cells = [found.get((*first, *heading), nothing) for heading in headings]
        rows.append((*first, *(cell.best for cell in cells)))
        shown = (cell.metric.text if cell.numbers else "" for cell in cells)
        metrics.append((*("",) * rows_by, *shown))
    names = tuple(" ".join(map(_heading, across, values)) for values in headings)
    several = _metrics_in(found.values())
    about = asked or next(iter(several), _DEFAULT)
    best, what = f"the {_direction(about)}", about.text
    if len(several) > 1:
        best, what = "the best", " or ".join(key.text for key in several)
    by = ", ".join(key.text for key in down), ", ".join(key.text for key in across)
    return Answer(
        (*(key.text for key in down), *names),
        tuple(rows),
        tuple(metrics),
        f"{what} by {by[0]} and {by[1]}: {best} of the verified trials in each cell",
        _remarks("cell", found.values()),
        {rows_by + at: f"metric of {name}" for at, name in enumerate(names)}
        if len(several) > 1
        else {},
    )


_DEFAULT = parse_key(TIME.name)


def _most(counts: Counter[str]) -> str:
    return max(counts, key=lambda metric: (counts[metric], -metric_rank(metric)))


def _metrics_in(found: Iterable[_Measured]) -> list[Key]:
    """The metrics of the values, in ranking order."""
    keys = {measured.metric.text: measured.metric for measured in found if measured.numbers}
    return [keys[name] for name in sorted(keys, key=metric_rank)]


def _remarks(what: str, found: Collection[_Measured]) -> tuple[str, ...]:
    reasons: Counter[str] = Counter()
    for measured in found:
        reasons += measured.not_ranked
    said = tuple(not_ranked_remark(reason, number) for reason, number in reasons.items())
    return said + _mixed_remark(what, [m.left_out for m in found if m.left_out])


def _mixed_remark(what: str, mixed: Sequence[int]) -> tuple[str, ...]:
    if not mixed:
        return ()
    trials = f"{count(sum(mixed), 'trial')} {'is' if sum(mixed) == 1 else 'are'} left out"
    which = f"{count(len(mixed), what)} {'has' if len(mixed) == 1 else 'have'}"
    return (
        f"{which} trials that are ranked by different metrics: the one that most of them have "
        f"counts, and {trials}; --metric chooses one, --group target or a filter keeps them apart",
    )


def ordered(answer: Answer, sort: str) -> Answer:
    """The rows sorted by a column; `-` before its name for descending order."""
    if not sort:
        return answer
    name = sort.removeprefix("-")
    if name not in answer.headings:
        raise UsageError(
            f"--sort {sort}: the answer has no such column", hint=nearest(name, answer.headings)
        )
    at = answer.headings.index(name)
    both = list(zip(answer.rows, answer.metrics, strict=True))
    present = [pair for pair in both if pair[0][at] is not None]
    present.sort(key=lambda pair: _order(pair[0][at]), reverse=sort.startswith("-"))
    # Values of different metrics are not comparable, so each metric is sorted separately.
    present.sort(key=lambda pair: pair[1][at])
    both = present + [pair for pair in both if pair[0][at] is None]
    rows, metrics = (tuple(pair[place] for pair in both) for place in (0, 1))
    return replace(answer, rows=rows, metrics=metrics)


def first_rows(answer: Answer, limit: int) -> Answer:
    """The first rows."""
    return replace(answer, rows=answer.rows[:limit], metrics=answer.metrics[:limit])


def _heading(key: Key, value: Any) -> str:
    return f"{key.text.rpartition('.')[2]}={'' if value is None else value_text(value)}"


def _hashable(value: Any) -> Any:
    return value_text(value) if isinstance(value, (list, Mapping)) else value


def _sorted(several: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(several, key=lambda values: [_order(value) for value in values])


def _order(value: Any) -> tuple[int, float, str]:
    """Sort key: numbers before text, missing values last."""
    if isinstance(value, (int, float)):
        return (0, value, "")
    return (2, 0, "") if value is None else (1, 0, str(value))


def _direction(metric: Key) -> str:
    known = metric_named(metric.text)
    return "largest" if known and known.better == "larger" else "smallest"


def _best(numbers: Sequence[float], metric: Key) -> float:
    return max(numbers) if _direction(metric) == "largest" else min(numbers)


def cell_text(value: Any, metric: str, *, unit: bool = False) -> str:
    """A value for people: times with their unit, other metrics if `unit` is set."""
    if value is None:
        return ""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value_text(value)
    name = metric.removeprefix("metrics.")
    known = metric_named(name, scan=False)
    if known and known.text is not number_text:
        text = known.text(value)
    elif isinstance(value, int) and not isinstance(known, Gauge) and name not in USUAL_METRICS:
        text = str(value)
    else:
        text = number_text(value)
    return f"{text} {known.label}" if unit and known and known.label else text
