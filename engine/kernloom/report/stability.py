"""The attempts of each trial over time: what a machine gave for the same artifacts, run again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, TextIO

from kernloom.base.gauges import TIME
from kernloom.base.units import count, time_text
from kernloom.measure.drift import episodes, excludes, look_of
from kernloom.measure.statistics import median
from kernloom.measure.trial import Trial
from kernloom.report.page import Heading, Page
from kernloom.report.sparkline import sparkline

HEADINGS = (
    *("trial", "workload", "case", "target", "policy", "attempts", "over", "median"),
    *("fastest", "slowest", "between minutes", "disagree", "in time"),
)
TEXTS = 5
"""Headings of texts, which come first."""


@dataclass(frozen=True)
class Stability:
    """The measured attempts of one trial, oldest first."""

    attempts: Sequence[Trial]

    @property
    def times(self) -> list[float]:
        return [float(trial.metrics[TIME.name]) for trial in self.attempts]

    @property
    def median_ns(self) -> float:
        return median(self.times)

    @property
    def drift(self) -> float | None:
        """Standard deviation of the log times of its episodes; None for a single one."""
        found = episodes([look for trial in self.attempts if (look := look_of(trial))])
        return stdev(map(median, found)) if len(found) > 1 else None

    @property
    def covering(self) -> int:
        """Attempts whose interval includes the median of all."""
        return sum(
            t.metrics.get(TIME.low, math.inf) <= self.median_ns <= t.metrics.get(TIME.high, 0.0)
            for t in self.attempts
        )

    @property
    def disagreeing(self) -> int:
        """Pairs of attempts with intervals that exclude each other."""
        return sum(
            excludes(first, second)
            for number, first in enumerate(self.attempts)
            for second in self.attempts[:number]
        )

    @property
    def seconds(self) -> float:
        """Time from the first attempt to the last."""
        looks = [look.at for trial in self.attempts if (look := look_of(trial))]
        return (max(looks) - min(looks)).total_seconds()

    def document(self) -> dict[str, Any]:
        newest = self.attempts[-1]
        return {
            "id": newest.id,
            "workload": newest.workload,
            "case": newest.case,
            "target": newest.target,
            "policy": _policy(newest),
            "seconds": self.seconds,
            TIME.name: self.median_ns,
            "min_ns": min(self.times),
            "max_ns": max(self.times),
            "drift": self.drift,
            "covering": self.covering,
            "disagreeing_pairs": self.disagreeing,
            "attempts": [
                {
                    "attempt": trial.attempt,
                    "created": trial.created,
                    "status": trial.status,
                    "looked": trial.conditions.get("looked"),
                    **{key: trial.metrics.get(key) for key in (*TIME.keys, "processes", "drift")},
                    "covers": bool(
                        trial.metrics.get(TIME.low, math.inf)
                        <= self.median_ns
                        <= trial.metrics.get(TIME.high, 0.0)
                    ),
                }
                for trial in self.attempts
            ],
        }


def stabilities(trials: Iterable[Trial]) -> list[Stability]:
    """The trials with a measured time, the one with the most attempts first."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        if look_of(trial):
            found.setdefault(trial.id, []).append(trial)
    groups = [sorted(attempts, key=lambda t: t.attempt) for attempts in found.values()]
    return [Stability(attempts) for attempts in sorted(groups, key=len, reverse=True)]


def print_stability(found: Sequence[Stability], file: TextIO) -> None:
    """A line for each trial; of a single one, a line for each attempt as well."""
    page = Page(file)
    if len(found) == 1:
        _print_attempts(found[0], page)
    drawn = page.draws
    names = HEADINGS if drawn else HEADINGS[:-1]
    headings = [Heading(name, number=at >= TEXTS) for at, name in enumerate(names)]
    page.table(headings, [_row(item)[: len(names)] for item in found])
    attempts = sum(len(item.attempts) for item in found)
    page.line(f"{count(len(found), 'trial')}, {count(attempts, 'attempt')}")


def _row(item: Stability) -> list[str]:
    newest, drift = item.attempts[-1], item.drift
    pairs = len(item.attempts) * (len(item.attempts) - 1) // 2
    return [
        newest.id[:12],
        newest.workload,
        newest.case,
        newest.target,
        _policy(newest),
        str(len(item.attempts)),
        time_text(item.seconds * 1e9) if item.seconds else "",
        time_text(item.median_ns),
        f"{min(item.times) / item.median_ns - 1:+.1%}",
        f"{max(item.times) / item.median_ns - 1:+.1%}",
        "" if drift is None else f"±{drift:.1%}",
        f"{item.disagreeing} of {count(pairs, 'pair')}" if pairs else "",
        sparkline(item.times),
    ]


def _print_attempts(item: Stability, page: Page) -> None:
    headings = [Heading("attempt", number=True), Heading("when"), Heading("status")]
    headings += [Heading("time", number=True), Heading("rounds", number=True)]
    headings += [Heading("from the median", number=True), Heading("interval has it")]
    rows = [
        [
            str(trial.attempt),
            trial.created[:19].replace("T", " "),
            trial.status,
            TIME.with_interval(trial.metrics),
            str(trial.metrics.get("processes", "")),
            f"{trial.metrics[TIME.name] / item.median_ns - 1:+.1%}",
            "yes" if entry["covers"] else "no",
        ]
        for trial, entry in zip(item.attempts, item.document()["attempts"], strict=True)
    ]
    page.table(headings, rows)
    page.line(
        f"{item.covering} of {count(len(rows), 'interval')} include the median of all attempts, "
        f"{time_text(item.median_ns)}"
    )


def _policy(trial: Trial) -> str:
    policy = trial.config.get("measure") or {}
    return str(policy.get("name", ""))
