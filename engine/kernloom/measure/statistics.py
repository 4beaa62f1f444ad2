"""Statistics of samples: process medians and a confidence interval; no sample is dropped.

The interval is the percentile bootstrap of the median. The probability that a resample's median has
given ranks depends only on the number of values, so the bootstrap distribution is computed exactly
instead of drawn: the same samples always give the same interval, at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from kernloom.base.gauges import GBYTES_PER_S, GFLOPS, TIME, Gauge
from kernloom.measure.trial import Samples

CONFIDENCE = 0.95
NEGLIGIBLE = 1e-12
LARGE = 500
"""Number of values from which the bounds' ranks use the normal approximation."""
OUTLIER_FLOOR = 0.01
"""Clocks are coarse: no value nearer to the median than this share of it is an outlier."""

Clock = Literal["auto", "cpu", "wall"]
RankingClock: TypeAlias = str
"""The series that ranks the samples: `cpu`, `wall`, or the name of a sampled gauge other than
time."""


@dataclass(frozen=True)
class Interval:
    """A median and the bounds of its confidence interval."""

    middle: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float:
        """Half the interval as a share of the median; compared with a policy's `bound`."""
        if self.high == self.low:
            return 0.0
        return (self.high - self.low) / 2 / abs(self.middle) if self.middle else math.inf


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median of `values` with its percentile-bootstrap confidence interval."""
    ordered = sorted(float(value) for value in values)
    count, tail = len(ordered), (1 - confidence) / 2
    if count >= LARGE:
        from statistics import NormalDist

        reach = NormalDist().inv_cdf(1 - tail) * math.sqrt(count) / 2
        low, high = math.floor(count / 2 - reach), math.ceil(count / 2 + reach)
        return Interval(_at(ordered, 0.5), ordered[low], ordered[high])
    medians = sorted(
        ((ordered[low] + ordered[high]) / 2, share) for low, high, share in _median_ranks(count)
    )
    return Interval(_at(ordered, 0.5), _reached(medians, tail), _reached(medians, 1 - tail))


def median(values: Iterable[float]) -> float:
    return _at(sorted(float(value) for value in values), 0.5)


def _at(ordered: Sequence[float], share: float) -> float:
    """The quantile `share` of ordered values, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _reached(medians: Sequence[tuple[float, float]], share: float) -> float:
    reached = 0.0
    for value, probability in medians:
        reached += probability
        if reached >= share:
            return value
    return medians[-1][0]


@lru_cache(maxsize=256)
def _median_ranks(count: int) -> tuple[tuple[int, int, float], ...]:
    """(lower rank, upper rank, probability) of the two middle values of a resample of `count`.

    With an odd count both are the same value.
    """
    half = (count + 1) // 2
    reached = [_at_least(half, count, rank / count) for rank in range(count + 1)]
    marginal = [after - before for before, after in pairwise(reached)]
    if count % 2:
        return tuple((i, i, p) for i, p in enumerate(marginal) if p > NEGLIGIBLE)
    ways = _log_choose(count, half)
    ranks = []
    for low, probability in enumerate(marginal):
        if probability <= NEGLIGIBLE:
            continue
        # Half of the draws are at most `low` and reach it, the others are at least `high` and reach
        # it; the rest of the marginal is the case that both are the same value.
        below = ways + _log_reaching(low + 1, half, count)
        apart = 0.0
        for high in range(low + 1, count):
            share = math.exp(below + _log_reaching(count - high, half, count))
            apart += share
            if share > NEGLIGIBLE:
                ranks.append((low, high, share))
        if probability - apart > NEGLIGIBLE:
            ranks.append((low, low, probability - apart))
    return tuple(ranks)


def _log_choose(count: int, chosen: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


def _log_reaching(rank: int, draws: int, count: int) -> float:
    """log P(all of `draws` are among the first `rank` of `count` values, and one is the last)."""
    return draws * math.log(rank / count) + math.log1p(-(((rank - 1) / rank) ** draws))


def _at_least(successes: int, draws: int, chance: float) -> float:
    """P(Binomial(draws, chance) >= successes)."""
    if chance in (0.0, 1.0):
        return chance
    yes, no = math.log(chance), math.log1p(-chance)
    return math.fsum(
        math.exp(_log_choose(draws, k) + k * yes + (draws - k) * no)
        for k in range(successes, draws + 1)
    )


def chosen_clock(clock: Clock, threads: int) -> Literal["cpu", "wall"]:
    """`auto` is CPU time, which a busy machine disturbs least, unless there are several threads."""
    if clock == "auto":
        return "cpu" if threads == 1 else "wall"
    return clock


def times_of(samples: Samples, clock: RankingClock) -> tuple[float, ...]:
    if clock == "cpu":
        return samples.cpu_ns
    return samples.wall_ns if clock == "wall" else samples.readings.get(clock, ())


def timing(processes: Sequence[Samples], clock: RankingClock) -> Interval:
    """The time of one run: over process medians, or over the samples of a single process."""
    if len(processes) == 1:
        return median_interval(times_of(processes[0], clock))
    return median_interval(process_medians(processes, clock))


def process_medians(processes: Iterable[Samples], clock: RankingClock) -> list[float]:
    return [median(times_of(process, clock)) for process in processes]


def ratio(
    above: Sequence[Samples],
    below: Sequence[Samples],
    clock: RankingClock,
    confidence: float = CONFIDENCE,
) -> Interval:
    """How many times longer `above` took, from one pair per round.

    A disturbance affects both of a round alike, so their ratio is steadier than either. A single
    round has no pairs: its interval is as wide as both intervals allow.
    """
    if len(above) == 1:
        first, second = timing(above, clock), timing(below, clock)
        return Interval(
            first.middle / second.middle, first.low / second.high, first.high / second.low
        )
    found = median_interval(log_ratios(above, below, clock), confidence)
    return Interval(math.exp(found.middle), math.exp(found.low), math.exp(found.high))


def log_ratios(
    above: Sequence[Samples], below: Sequence[Samples], clock: RankingClock
) -> list[float]:
    """Log ratios of the process medians, round by round."""
    pairs = zip(process_medians(above, clock), process_medians(below, clock), strict=True)
    return [math.log(first / second) for first, second in pairs]


def two_sided(values: Sequence[float]) -> float:
    """Probability of a median this far from zero if the true one is zero: twice the share of the
    bootstrap distribution on the other side."""
    ordered = sorted(values)
    medians = [
        ((ordered[low] + ordered[high]) / 2, share)
        for low, high, share in _median_ranks(len(ordered))
    ]
    below = sum(share for value, share in medians if value <= 0)
    above = sum(share for value, share in medians if value >= 0)
    return min(1.0, 2 * min(below, above))


def outlier_share(processes: Iterable[Sequence[float]]) -> float:
    """The share of samples outside Tukey's fences around the quartiles of their own process."""
    outliers = total = 0
    for times in processes:
        total += len(times)
        if len(times) < 4:
            continue
        ordered = sorted(times)
        first, middle, third = (_at(ordered, share) for share in (0.25, 0.5, 0.75))
        reach, floor = 1.5 * (third - first), OUTLIER_FLOOR * abs(middle)
        outliers += sum(
            not first - reach <= time <= third + reach and abs(time - middle) > floor
            for time in times
        )
    return outliers / total if total else 0.0


def metrics_of(
    samples: Sequence[Samples],
    clock: RankingClock,
    flops: float = 0,
    bytes: float = 0,
) -> dict[str, Any]:
    """The flat metrics of a trial; rates only if the workload declares the work of one run."""
    measured = [process for process in samples if process.wall_ns]
    if not measured:
        return {"deterministic": []}
    time = timing(measured, clock)
    metrics: dict[str, Any] = {
        **interval_metrics(TIME, time),
        "min_ns": float(min(min(times_of(process, clock)) for process in measured)),
        "wall_ns": median(median(process.wall_ns) for process in measured),
        "samples": sum(len(process.wall_ns) for process in measured),
        "processes": len(measured),
        "inner": int(max(process.inner for process in measured)),
        "outlier_share": outlier_share(times_of(process, clock) for process in measured),
        "involuntary_switches": int(sum(sum(process.involuntary) for process in measured)),
        "deterministic": [],
    }
    if all(process.cpu_ns for process in measured):
        metrics["cpu_ns"] = median(median(process.cpu_ns) for process in measured)
    if time.middle > 0 and flops:
        metrics[GFLOPS.name] = flops / time.middle
    if time.middle > 0 and bytes:
        metrics[GBYTES_PER_S.name] = bytes / time.middle
    return metrics


def interval_metrics(gauge: Gauge, found: Interval) -> dict[str, float]:
    """Metrics of a sampled gauge: its median, and the interval if the gauge has keys for it."""
    values = (found.middle, found.low, found.high)
    return dict(zip(gauge.keys, values, strict=False))


def readings_of(samples: Sequence[Samples], gauges: Iterable[Gauge]) -> dict[str, Any]:
    """Metrics of gauges other than time, and the names of the exact ones."""
    others = [gauge for gauge in gauges if gauge != TIME]
    metrics: dict[str, Any] = {"processes": len(samples)}
    for gauge in others:
        if gauge.exact:
            metrics[gauge.name] = samples[-1].readings[gauge.name][0]
        else:
            metrics |= interval_metrics(gauge, timing(samples, gauge.name))
    return metrics | {"deterministic": [gauge.name for gauge in others if gauge.exact]}
