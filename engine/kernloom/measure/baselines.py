"""Baselines: the same workload by what people would use instead, measured in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from kernloom.base.errors import KernloomError
from kernloom.measure.statistics import Interval, RankingClock, median, ratio, times_of
from kernloom.measure.trial import Samples


class Measurable(Protocol):
    """What can be measured a process at a time."""

    def sample(self, *, fresh: bool = True) -> Samples: ...

    def count(self) -> int: ...


class Baseline:
    """One alternative that the trials of a sweep share: each round measures it once."""

    def __init__(self, make: Callable[[], Measurable]) -> None:
        self._make = make
        self._rounds: list[Samples] = []
        self._count: int | None = None
        self.problem = ""
        """Why there is nothing to compare with."""

    @cached_property
    def _measurable(self) -> Measurable:
        return self._make()

    def of_round(self, number: int) -> Samples | None:
        """Its samples in a round, which whoever asks first takes; None once it has failed."""
        while len(self._rounds) <= number and not self.problem:
            try:
                self._rounds.append(self._measurable.sample())
            except KernloomError as error:
                self.problem = str(error)
        return self._rounds[number] if number < len(self._rounds) else None

    def count(self) -> int | None:
        """Its instructions, on a device that counts them."""
        if self._count is None and not self.problem:
            try:
                self._count = self._measurable.count()
            except KernloomError as error:
                self.problem = str(error)
        return self._count


@dataclass(frozen=True)
class Baselines:
    """Those that one trial is compared with, by name."""

    named: Mapping[str, Baseline] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        return [
            f"no ratio to {name}: {baseline.problem.splitlines()[0]}"
            for name, baseline in self.named.items()
            if baseline.problem
        ]

    def metrics(self, ours: Sequence[Samples], clock: RankingClock) -> dict[str, Any]:
        """Name -> its time over ours, above 1 where ours is faster."""
        found: dict[str, Any] = {}
        for name, baseline in self.named.items():
            theirs = [baseline.of_round(number) for number in range(len(ours))]
            paired = [samples for samples in theirs if samples is not None]
            if len(paired) == len(ours):
                times = median(median(times_of(process, clock)) for process in paired)
                found[name] = _entry(ratio(paired, ours, clock), "median_ns", times)
        return found

    def counts(self, ours: int) -> dict[str, Any]:
        """The same of instructions."""
        counts = {name: baseline.count() for name, baseline in self.named.items()}
        return {
            name: _entry(Interval(count / ours, count / ours, count / ours), "instructions", count)
            for name, count in counts.items()
            if count is not None
        }


def _entry(ratio: Interval, unit: str, value: float) -> dict[str, float]:
    return {"ratio": ratio.middle, "ci_low": ratio.low, "ci_high": ratio.high, unit: value}
