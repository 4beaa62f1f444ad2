"""Drift: how much the speed of a machine differs from one minute to the next.

A run looks at a kernel for some seconds, inside one episode of clock frequency and neighbours. More
rounds make the time of this episode precise, and say nothing about the next one. The interval of a
trial is therefore that of its rounds, widened by the spread between episodes. That spread is
assumed by the policy (`drift`), raised if the rounds themselves drift, and learnt from earlier
attempts of the trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import NormalDist, fmean, median_low, stdev
from typing import Any

from kernloom.base.gauges import TIME
from kernloom.measure.statistics import (
    CONFIDENCE,
    Interval,
    RankingClock,
    median,
    process_medians,
    timing,
)
from kernloom.measure.trial import Samples, Trial

ROUNDS_LOW, ROUNDS_HIGH = "rounds_low_ns", "rounds_high_ns"
"""Metrics: the interval within the rounds, for comparison with trials of the same rounds."""
DRIFT = "drift"
"""Metric: the spread between episodes that the interval allows for, as a share."""
LOOKED = "looked"
"""Condition of a trial: begin and end of its rounds, ISO 8601, UTC."""
SHARED = 0.5
"""Least share of the shorter look for trials of the same rounds."""
EPISODE_S = 60.0
"""Attempts that follow each other faster saw the same episode, and count once."""
ASSUMED = 3
"""Weight of the policy's assumption, in episodes."""
BLOCKS = 4
"""Blocks of consecutive rounds, whose medians show drift within a look."""
SLOWER_DRIFT = 1.5
"""The spread between minutes as a multiple of the spread between blocks: drift grows with time."""

MOST = 0.5
"""Largest spread that counts as drift of a machine. More is a disturbance: its size says nothing
about the next minute."""


@dataclass(frozen=True)
class Drift:
    """Standard deviation of log times between episodes."""

    deviation: float
    freedom: float
    """Degrees of freedom of the estimate."""
    episodes: float = 1.0
    """Number of episodes that the look lasted: their drift is averaged."""

    @property
    def reach(self) -> float:
        """How far a look may be from the long run, with the confidence of intervals."""
        quantile = student(1 - (1 - CONFIDENCE) / 2, self.freedom)
        return self.deviation * quantile / math.sqrt(self.episodes)


@dataclass(frozen=True)
class Look:
    """What an attempt saw: its time, and when."""

    at: datetime
    ns: float


def drift_of(
    assumed: float, blocks: float, looks: Sequence[Look] = (), seconds: float = 0.0
) -> Drift:
    """The drift to allow for: that of episodes seen so far, and of an assumption that counts as
    much as some of them. `blocks` is the spread within the newest look, which lasted so many
    seconds."""
    prior = max(assumed, min(MOST, SLOWER_DRIFT * blocks))
    seen = episodes(looks)
    centre = median(map(fmean, seen)) if seen else 0.0
    most = max(assumed, MOST)
    squares = sum(fmean(min(abs(one - centre), most) ** 2 for one in values) for values in seen)
    freedom = ASSUMED + max(0, len(seen) - 1)
    deviation = math.sqrt((ASSUMED * prior**2 + squares) / freedom)
    return Drift(deviation, freedom, max(1.0, seconds / EPISODE_S))


def episodes(looks: Sequence[Look]) -> list[list[float]]:
    """The log times of each episode: those of the looks within a minute of its first."""
    found: list[list[float]] = []
    begun: datetime | None = None
    for look in sorted(looks, key=lambda look: look.at):
        if begun is None or (look.at - begun).total_seconds() >= EPISODE_S:
            begun = look.at
            found.append([])
        found[-1].append(math.log(look.ns))
    return found


def spread_of_blocks(processes: Sequence[Samples], clock: RankingClock) -> float:
    """Standard deviation of the log medians of consecutive rounds; 0 with too few of them. Of two
    middle rounds the lower one counts: a single one that was disturbed is no drift."""
    times = process_medians(processes, clock)
    if len(times) < 2 * BLOCKS or min(times) <= 0:
        return 0.0
    ends = [len(times) * number // BLOCKS for number in range(BLOCKS + 1)]
    return stdev(math.log(median_low(times[start:end])) for start, end in pairwise(ends))


def disturbed(processes: Sequence[Samples], clock: RankingClock) -> str:
    """Why rounds that differ by more than drift say nothing of the next minute; '' otherwise."""
    spread = spread_of_blocks(processes, clock)
    if SLOWER_DRIFT * spread <= MOST:
        return ""
    times = process_medians(processes, clock)
    return (
        f"the machine was disturbed: rounds differ by up to a factor of "
        f"{max(times) / min(times):.3g}: quieten it, and repeat it with rerun=failed"
    )


def widened(interval: Interval, drift: Drift) -> Interval:
    """The interval of the rounds and the drift together."""
    if interval.low <= 0:
        return interval
    below = math.hypot(math.log(interval.middle / interval.low), drift.reach)
    above = math.hypot(math.log(interval.high / interval.middle), drift.reach)
    return Interval(
        interval.middle, interval.middle * math.exp(-below), interval.middle * math.exp(above)
    )


def drift_metrics(
    processes: Sequence[Samples],
    clock: RankingClock,
    assumed: float,
    looks: Sequence[Look] = (),
    seconds: float = 0.0,
) -> dict[str, float]:
    """The metrics of a time's interval, with drift; none for a policy that assumes no drift.
    `looks` are those of all attempts, this one's included, which lasted so many seconds."""
    measured = [process for process in processes if process.wall_ns]
    if not assumed or not measured:
        return {}
    rounds = timing(measured, clock)
    drift = drift_of(assumed, spread_of_blocks(measured, clock), looks, seconds)
    found = widened(rounds, drift)
    return {
        TIME.low: found.low,
        TIME.high: found.high,
        ROUNDS_LOW: rounds.low,
        ROUNDS_HIGH: rounds.high,
        DRIFT: drift.deviation,
    }


def look_of(trial: Trial) -> Look | None:
    """What a stored trial saw; None if it has no time."""
    ns = trial.metrics.get(TIME.name)
    if not trial.good or not ns or not trial.created:
        return None
    return Look(datetime.fromisoformat(trial.created), float(ns))


def excludes(first: Trial, second: Trial) -> bool:
    """Whether the intervals of two attempts have no time in common."""
    if not first.good or not all(
        TIME.low in t.metrics and TIME.high in t.metrics for t in (first, second)
    ):
        return False
    below = first.metrics[TIME.high] < second.metrics[TIME.low]
    return bool(below or second.metrics[TIME.high] < first.metrics[TIME.low])


def student(probability: float, freedom: float) -> float:
    """Quantile of Student's distribution, by its expansion around the normal one: within 1% for
    three degrees of freedom and more."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def times_text(begun: datetime, ended: datetime) -> list[str]:
    """Begin and end of a look, as the condition `looked`."""
    return [time.isoformat(timespec="milliseconds") for time in (begun, ended)]


def looked(conditions: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    """Begin and end of a look; None where it was not recorded."""
    try:
        begun, ended = map(datetime.fromisoformat, conditions[LOOKED])
    except (KeyError, TypeError, ValueError):
        return None
    return begun, ended


def seconds_of(look: tuple[datetime, datetime] | None) -> float:
    return (look[1] - look[0]).total_seconds() if look else 0.0


def same_rounds(
    first: tuple[datetime, datetime] | None, second: tuple[datetime, datetime] | None
) -> bool:
    """Whether two looks share most of their time, so that drift affects both alike."""
    if first is None or second is None:
        return False
    both = (min(first[1], second[1]) - max(first[0], second[0])).total_seconds()
    return both > 0 and both >= SHARED * min(seconds_of(first), seconds_of(second))
