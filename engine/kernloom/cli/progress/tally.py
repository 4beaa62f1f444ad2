"""The state of a run: its progress, its remaining time, and the results so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernloom.measure.trial import Trial

LEADERS = 5
"""Number of best points shown."""
MAX_PENDING = 500
"""Limit of trials that wait to be ranked until the view is drawn."""
MIN_PHASE_S = 1.0
"""Minimal duration of a phase for a meaningful rate."""


@dataclass(frozen=True, slots=True)
class _Leader:
    """A trial among the best of those that do the same work."""

    cost: float
    """Smaller is better."""
    value: str
    point: str


class Tally:
    """The data that a view of a run shows."""

    def __init__(self) -> None:
        self.phase = self.note = ""
        self.done = self.total = 0
        self.failed: Counter[str] = Counter()
        self._start = self._now = 0.0
        self._first = self._part = 0.0
        self._ended: list[Trial] = []
        self._leaders: dict[bytes, list[_Leader]] = {}
        """Leaders by the work they do."""

    def reached(
        self, phase: str, done: int, total: int, note: str, part: float, now: float
    ) -> bool:
        """Update the progress; returns whether a new phase has begun."""
        new = total != self.total or done < self.done or not self.phase
        if new:
            self._start, self._first = now, done + part
        self.phase, self.note = phase, note
        self.done, self.total, self._part, self._now = done, total, part, now
        return new

    def add(self, trial: Trial) -> None:
        if trial.good:
            self._ended.append(trial)
            if len(self._ended) >= MAX_PENDING:
                self._rank()
        else:
            self.failed[trial.status] += 1

    @property
    def fraction(self) -> float:
        return min(1.0, (self.done + self._part) / self.total) if self.total else 0.0

    @property
    def rate(self) -> float:
        """Items per second; 0 while unknown."""
        seconds = self._now - self._start
        return (self.done + self._part - self._first) / seconds if seconds > MIN_PHASE_S else 0.0

    @property
    def speed(self) -> str:
        """`23/s, 0:07 left`."""
        rate = self.rate
        if rate <= 0:
            return ""
        left = f"{duration((self.total - self.done - self._part) / rate)} left"
        if not self.done:
            return left
        often = f"{rate:.3g}/s" if rate >= 1 else f"{1 / rate:.3g} s each"
        return f"{often}, {left}"

    def best(self) -> list[tuple[str, str]]:
        """Value and point of the leaders, best first, for work that was done more than once; if
        points do different work, the best of each."""
        self._rank()
        several = len(self._leaders) > 1
        # A trial without another to compare it with is not the best of anything.
        compared = (group for group in self._leaders.values() if len(group) > 1)
        shown = [leader for group in compared for leader in group[: 1 if several else LEADERS]]
        found = []
        for leader in shown[:LEADERS]:
            # The part that all points have in common is left out.
            point = leader.point if several else leader.point.partition(", ")[2] or leader.point
            found.append((leader.value, point))
        return found

    def _rank(self) -> None:
        from kernloom.measure.ranking import FAILED, not_ranked, objective
        from kernloom.report.columns import subjects_text

        for trial in self._ended:
            found = objective(trial)
            if found is FAILED or not_ranked(trial):
                continue
            group = self._leaders.setdefault(sha256(found.work.encode()).digest(), [])
            if len(group) < LEADERS or found.value < group[-1].cost:
                group.append(_Leader(found.value, _said(trial), subjects_text([trial])))
                group.sort(key=lambda leader: leader.cost)
                del group[LEADERS:]
        self._ended = []

    def failures(self) -> str:
        """`2 wrong, 1 timeout`."""
        return ", ".join(f"{number} {status}" for status, number in self.failed.items())

    def line(self) -> str:
        """The whole tally in one line."""
        best, failures = self.best(), self.failures()
        words = [f"{self.phase} {self.done}/{self.total}", self.note, self.speed]
        if best:
            words.append("best {}: {}".format(*best[0]))
        if failures:
            words.append(f"failed: {failures}")
        return "; ".join(filter(None, words))


def _said(trial: Trial) -> str:
    """The value that a trial is ranked by."""
    from kernloom.base.gauges import ranking_gauge

    gauge = ranking_gauge(trial.metrics)
    return gauge.with_label(trial.metrics[gauge.name]) if gauge else ""


def duration(seconds: float) -> str:
    """`0:07`, `12:34`, `2:05:00`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
