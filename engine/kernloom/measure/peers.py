"""Peers: the same workload computed by what people would use instead, measured in the same
rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from kernloom.base.errors import KernloomError
from kernloom.base.gauges import Gauge
from kernloom.measure.statistics import Interval, RankingClock, median, ratio, times_of
from kernloom.measure.trial import Samples


class Measurable(Protocol):
    """Something that can be measured one process at a time."""

    def sample(self, *, fresh: bool = True) -> Samples: ...

    def exact(self) -> Mapping[str, float]: ...


class Peer:
    """One peer, shared by the trials of a sweep: each round measures it once."""

    def __init__(self, make: Callable[[], Measurable]) -> None:
        self._make = make
        self._rounds: list[Samples] = []
        self._exact: Mapping[str, float] = {}
        self.problem = ""
        """Why the peer cannot be compared with."""

    @cached_property
    def _measurable(self) -> Measurable:
        return self._make()

    def of_round(self, number: int) -> Samples | None:
        """The peer's samples of a round, taken on the first request; None once it has failed."""
        while len(self._rounds) <= number and not self.problem:
            try:
                self._rounds.append(self._measurable.sample())
            except KernloomError as error:
                self.problem = str(error)
        return self._rounds[number] if number < len(self._rounds) else None

    def exact(self, gauge: Gauge) -> float | None:
        """The peer's reading of an exact gauge; None once it has failed."""
        if not self._exact and not self.problem:
            try:
                self._exact = self._measurable.exact()
            except KernloomError as error:
                self.problem = str(error)
        return self._exact.get(gauge.name)


@dataclass(frozen=True)
class Peers:
    """The peers of one trial, by name."""

    named: Mapping[str, Peer] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        return [
            f"no ratio to {name}: {peer.problem.splitlines()[0]}"
            for name, peer in self.named.items()
            if peer.problem
        ]

    def metrics(self, ours: Sequence[Samples], clock: RankingClock, gauge: Gauge) -> dict[str, Any]:
        """Name -> the peer's time divided by ours, above 1 where ours is faster; other gauges
        likewise."""
        found: dict[str, Any] = {}
        for name, peer in self.named.items():
            theirs = [peer.of_round(number) for number in range(len(ours))]
            paired = [samples for samples in theirs if samples is not None]
            if not all(times_of(samples, clock) for samples in paired):
                peer.problem = f"it has no {gauge.name}"
            elif len(paired) == len(ours):
                value = median(median(times_of(process, clock)) for process in paired)
                above, below = (paired, ours) if gauge.better == "smaller" else (ours, paired)
                found[name] = _entry(ratio(above, below, clock), gauge, value)
        return found

    def exact(self, ours: float, gauge: Gauge) -> dict[str, Any]:
        """The same for an exact gauge."""
        found: dict[str, Any] = {}
        for name, peer in self.named.items():
            if (theirs := peer.exact(gauge)) is not None:
                gain = gauge.gain(theirs, ours)
                found[name] = _entry(Interval(gain, gain, gain), gauge, theirs)
        return found


def _entry(ratio: Interval, gauge: Gauge, value: float) -> dict[str, float]:
    return {"ratio": ratio.middle, "ci_low": ratio.low, "ci_high": ratio.high, gauge.name: value}
