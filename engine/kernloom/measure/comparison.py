"""Comparing: contenders measured in the same rounds, and verdicts from their ratios."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernloom.base.errors import KernloomError
from kernloom.base.gauges import INSTRUCTIONS, TIME, Gauge
from kernloom.config.schema import Policy as Policy
from kernloom.measure.peers import Measurable
from kernloom.measure.rounds import too_short
from kernloom.measure.statistics import (
    CONFIDENCE,
    RankingClock,
    log_ratios,
    median_interval,
    two_sided,
)
from kernloom.measure.trial import Samples
from kernloom.measure.turns import Order

Verdict = Literal["faster", "slower", "equivalent", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("faster", "slower", "equivalent", "inconclusive")


@dataclass(frozen=True)
class Comparison:
    """The result for two contenders: `b` relative to `a`."""

    a: str
    b: str
    speedup: float
    """Time of a / time of b: above 1 where b is faster; other gauges likewise."""
    ci_low: float
    ci_high: float
    verdict: Verdict
    rounds: int


@dataclass
class Entry:
    """One contender's result."""

    name: str
    status: str = "ok"
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    """Readings of its device's gauges."""
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    """The median of each round's process, for the gauge that is compared."""


@dataclass
class Compared:
    """The result of a comparison."""

    entries: list[Entry]
    comparisons: list[Comparison]
    control: Comparison | None = None
    """The first contender against itself."""
    clock: RankingClock = "cpu"
    """The series of the samples that was compared."""
    gauge: Gauge = TIME
    policy: str = ""
    notes: list[str] = field(default_factory=list)
    """Notes on the comparison, and reasons not to trust it."""


@dataclass
class Race:
    """Contenders and their samples, round by round."""

    contenders: dict[str, Measurable]
    samples: dict[str, list[Samples]] = field(default_factory=dict)
    problems: dict[str, KernloomError] = field(default_factory=dict)
    """Contenders that failed; the others continue."""
    ended: str = ""
    """Why it stopped before every ratio was as precise as the policy asks."""

    @property
    def rounds(self) -> int:
        return min((len(self.samples.get(name, ())) for name in self.contenders), default=0)


def race(
    contenders: Mapping[str, Measurable],
    pairs: Sequence[tuple[str, str]],
    policy: Policy,
    clock: RankingClock,
    watch: Callable[[int], None] = lambda round: None,
    *,
    comparisons: int = 0,
    seed: int | None = None,
) -> Race:
    """Rounds of all contenders in random order until every pair's ratio is within the policy's
    bound, or rounds or budget end; `comparisons` is their total number.

    It stops when the ratios are precise, never when they appear significant: repeated tests until
    they do would call noise a difference.
    """
    state = Race(dict(contenders), {name: [] for name in contenders})
    order = Order(contenders, seed)
    total = max(comparisons, len(pairs))
    start = time.monotonic()
    while state.contenders:
        watch(state.rounds + 1)
        for name in order.next():
            try:
                state.samples[name].append(state.contenders[name].sample())
            except KernloomError as error:
                state.problems[name] = error
                del state.contenders[name]
                order.drop(name)
        left = [pair for pair in pairs if all(name in state.contenders for name in pair)]
        spent = (time.monotonic() - start) / len(contenders)
        if not left or (done := _stop_reason(state, left, policy, clock, spent, total)):
            state.ended = done if left and done != PRECISE else ""
            return state
    return state


PRECISE = "precise"
CERTAINLY = 1 / 3
"""The share of the floor that a difference must exceed with confidence to count."""


def _stop_reason(
    state: Race,
    pairs: Sequence[tuple[str, str]],
    policy: Policy,
    clock: RankingClock,
    spent: float,
    comparisons: int,
) -> str:
    """'' while more rounds are needed, else the reason to stop."""
    rounds = state.rounds
    least = min(max(policy.min_rounds, enough(comparisons)), policy.max_rounds)
    if rounds >= least:
        # Finer than the floor: chance then produces a difference of the floor's size in fewer than
        # one of a hundred comparisons.
        bound = min(policy.bound or policy.floor, 0.6 * policy.floor)
        widest = max(
            half_width(log_ratios(state.samples[a], state.samples[b], clock), comparisons)
            for a, b in pairs
        )
        if rounds < enough(comparisons):
            return (
                f"{_count(rounds, 'round')} (measure.max_rounds) cannot prove a difference: "
                f"{_count(comparisons, 'comparison')} need at least {enough(comparisons)}"
            )
        if widest <= bound:
            return PRECISE
        if rounds >= policy.max_rounds:
            return f"±{widest:.1%} after {rounds} rounds (measure.max_rounds)"
        if spent >= policy.budget_s:
            return f"±{widest:.1%} after {policy.budget_s:g} s (measure.budget_s)"
    elif spent >= policy.budget_s:
        return too_short(policy, rounds, spent)
    return ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def enough(comparisons: int) -> int:
    """The least number of rounds in which the clearest of `comparisons` differences can be
    significant."""
    return 1 + math.ceil(math.log2(comparisons / (1 - CONFIDENCE)))


def half_width(logs: Sequence[float], comparisons: int) -> float:
    """Half of a log ratio's interval, which is nearly that of the ratio itself."""
    found = median_interval(logs, confidence(comparisons))
    return (found.high - found.low) / 2


def confidence(comparisons: int) -> float:
    """Confidence of each interval, such that all hold together as often as a single one would."""
    return 1 - (1 - CONFIDENCE) / max(1, comparisons)


def paired(
    race: Race,
    pairs: Sequence[tuple[str, str]],
    clock: RankingClock,
    gauge: Gauge = TIME,
) -> dict[tuple[str, str], list[float]]:
    """The log ratios of each pair without a failure, above 0 where the second is better."""
    sign = 1.0 if gauge.better == "smaller" else -1.0
    return {
        (a, b): [sign * log for log in log_ratios(race.samples[a], race.samples[b], clock)]
        for a, b in pairs
        if not {a, b} & race.problems.keys() and race.samples[a] and race.samples[b]
    }


def judged(ratios: Mapping[tuple[str, str], Sequence[float]], floor: float) -> list[Comparison]:
    """Verdicts for all pairs, corrected for their number."""
    whole, logs = list(ratios), list(ratios.values())
    different = holm([probability(values, floor * CERTAINLY) for values in logs])
    return [
        _comparison(a, b, values, floor, significant, len(whole))
        for (a, b), values, significant in zip(whole, logs, different, strict=True)
    ]


def probability(logs: Sequence[float], least: float = 0.0) -> float:
    """Probability that chance gives such a ratio if the true one differs by no more than `least`.

    From the bootstrap, which claims too much with few rounds; hence at least the sign test's
    probability for as many rounds.
    """
    shift = math.copysign(least, median_interval(logs).middle)
    return max(two_sided([value - shift for value in logs]), 2.0 ** (1 - len(logs)))


def holm(probabilities: Sequence[float], level: float = 1 - CONFIDENCE) -> list[bool]:
    """Which differences are real, with a family-wise error of at most `level`."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    real = [False] * len(probabilities)
    for rank, index in enumerate(order):
        if probabilities[index] > level / (len(order) - rank):
            break
        real[index] = True
    return real


def _comparison(
    a: str, b: str, logs: Sequence[float], floor: float, significant: bool, comparisons: int
) -> Comparison:
    found = median_interval(logs, confidence(comparisons))
    verdict = verdict_of(found.middle, found.low, found.high, floor, significant=significant)
    if len(logs) == 1:
        # One round has no spread.
        verdict = "inconclusive"
    low, high = math.exp(found.low), math.exp(found.high)
    return Comparison(a, b, math.exp(found.middle), low, high, verdict, len(logs))


def verdict_of(
    middle: float, low: float, high: float, floor: float, *, significant: bool
) -> Verdict:
    """Verdict for a log ratio: a difference counts if it is real and no smaller than the floor."""
    least = math.log1p(floor)
    if significant and abs(middle) >= least:
        return "faster" if middle > 0 else "slower"
    return "equivalent" if -least <= low and high <= least else "inconclusive"


def counted(
    a: str, b: str, counts: Mapping[str, float], floor: float, gauge: Gauge = INSTRUCTIONS
) -> Comparison:
    """Comparison by an exact gauge: any difference is real."""
    ratio = gauge.gain(counts[a], counts[b])
    log = math.log(ratio)
    verdict = verdict_of(log, log, log, floor, significant=True)
    return Comparison(a, b, ratio, ratio, ratio, verdict, 1)
