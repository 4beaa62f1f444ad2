"""Judges claims by the numbers of trials: holds, fails, or cannot be decided here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from kernloom.base.gauges import RATES, ROOF_FRACTION, TIME, metric_named
from kernloom.base.units import number_text
from kernloom.measure.comparison import Comparison
from kernloom.measure.statistics import Interval
from kernloom.measure.trial import Trial
from kernloom.recipe.claims import Claim, Described, Side, Term

Verdict = Literal["holds", "fails", "undecided"]
_TOLERANCE = 1e-9
"""Relative difference of two equal numbers that were computed in different ways."""
_WORDS = {"holds": "holds", "fails": "FAILS", "undecided": "cannot be decided here"}


@dataclass(frozen=True)
class Judgement:
    """What came of one claim."""

    claim: str
    verdict: Verdict
    reason: str
    """The numbers, or why they do not decide it."""
    sampled: bool = False
    """Whether it rests on measured times, which another machine need not have."""
    trials: tuple[str, ...] = ()
    """Ids of the trials that it was judged by."""

    @property
    def line(self) -> str:
        return f"{_WORDS[self.verdict]}: {self.claim}   ({self.reason})"

    def document(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "reason": self.reason,
            "trials": list(self.trials),
        }


@dataclass(frozen=True)
class Reading:
    """A number of a trial with its confidence interval."""

    interval: Interval
    exact: bool
    trial: Trial


Race = Callable[[Trial, Trial], Comparison | str]
"""Measures two trials in the same rounds; a text says why it cannot."""


def judge(claim: Claim, trials: Sequence[Described], race: Race, *, absent: str = "") -> Judgement:
    """Judge a claim by all trials that it is about. `absent` says why there may be none."""
    about = [trial for trial in trials if trial.has(claim.on)]
    if not about:
        wanted = " ".join(f"{key}={value}" for key, value in claim.on) or "any kind"
        return Judgement(claim.text, "undecided", absent or f"no trial has {wanted}")
    groups = _groups(claim, about)
    if isinstance(groups, str):
        return Judgement(claim.text, "undecided", groups)
    found = [_judge_one(claim, group, race) for group in groups]
    order = {"fails": 0, "undecided": 1, "holds": 2}
    worst = min(found, key=lambda one: order[one.verdict])
    ids = tuple(dict.fromkeys(id for one in found for id in one.trials))
    if len(found) == 1:
        return worst
    number = sum(one.verdict == worst.verdict for one in found)
    where = f"{number} of {len(found)}, for instance {_point(worst, about)}: "
    return replace(worst, reason=where + worst.reason, trials=ids)


def _point(judgement: Judgement, about: Sequence[Described]) -> str:
    trial = next((one.trial for one in about if one.trial.id in judgement.trials), about[0].trial)
    point = [f"{key}={value}" for key, value in trial.point.items()]
    return " ".join(point) or f"{trial.workload} on {trial.target}"


Group = Mapping[Term, Described]


def _groups(claim: Claim, about: Sequence[Described]) -> list[Group] | str:
    """For each judgement the trial of each term; a text if a term has none."""
    terms = claim.terms
    narrowed = [term for term in terms if term.only]
    if not narrowed:
        return [dict.fromkeys(terms, one) for one in about]
    for term in terms:
        if not any(one.has(term.only) for one in about):
            return f"no trial is of {term.text}"
    keys = [key for term in narrowed for key, _ in term.only]
    groups: list[Group] = []
    anchor, *rest = terms
    for first in (one for one in about if one.has(anchor.only)):
        same = first.others(keys)
        group = {anchor: first}
        for term in rest:
            second = [one for one in about if one.has(term.only) and one.others(keys) == same]
            if second:
                group[term] = second[0]
        if len(group) == len(set(terms)):
            groups.append(group)
    return groups or "no two of its trials differ in just these values"


def _judge_one(claim: Claim, group: Group, race: Race) -> Judgement:
    trials = list({one.trial.id: one.trial for one in group.values()}.values())
    ids = tuple(trial.id for trial in trials)
    judgement = Judgement(claim.text, "undecided", "", trials=ids)
    for trial in trials:
        if not trial.good:
            if trial.status == "unavailable":
                return replace(judgement, reason=f"{trial.target}: {trial.message}")
            return replace(judgement, verdict="fails", reason=f"{_name(trial)} is {trial.status}")
    readings: dict[Term, Reading] = {}
    for term in group:
        found = _reading(term, group[term].trial)
        if isinstance(found, str):
            return replace(judgement, reason=found)
        readings[term] = found
    exact = all(reading.exact for reading in readings.values())
    judgement = replace(judgement, sampled=not exact)
    raced = _raced(claim, readings, race) if not exact and len(trials) == 2 else None
    if isinstance(raced, str):
        return replace(judgement, reason=raced)
    value = raced[0] if raced else _ratio(claim, readings)
    verdict = _verdict(claim, value, exact=exact)
    if verdict == "undecided" and raced and raced[1] == "equivalent" and claim.operator in "<>":
        verdict = "fails"
    text = _numbers(claim, readings, value, exact=exact)
    if verdict == "undecided":
        text += "; more rounds may decide it: measure=rigorous"
    return replace(judgement, verdict=verdict, reason=text)


def _name(trial: Trial) -> str:
    return f"{trial.workload} on {trial.target}"


def _reading(term: Term, trial: Trial) -> Reading | str:
    metrics = trial.metrics
    if term.peer:
        peer = (metrics.get("peers") or {}).get(term.peer)
        if not peer:
            known = ", ".join(metrics.get("peers") or ())
            measured = f"; its peers are {known}" if known else ""
            return f"{_name(trial)} was not measured beside {term.peer}{measured}"
        low, high = peer.get("ci_low", peer["ratio"]), peer.get("ci_high", peer["ratio"])
        return Reading(Interval(peer["ratio"], low, high), low == high, trial)
    value = _value(term.metric, metrics)
    if value is None:
        if term.metric == ROOF_FRACTION.name:
            return "this machine's roof is not measured: kernloom doctor --calibrate"
        known = ", ".join(name for name in metrics if metric_named(name, scan=False))
        return f"{_name(trial)} has no {term.metric}; it has {known}"
    if term.metric in metrics.get("deterministic", ()):
        return Reading(Interval(value, value, value), True, trial)
    low, high = _bounds(term.metric, value, metrics)
    return Reading(Interval(value, low, high), False, trial)


def _value(name: str, metrics: Mapping[str, Any]) -> float | None:
    node: Any = metrics
    for part in name.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    number = isinstance(node, (int, float)) and not isinstance(node, bool) and math.isfinite(node)
    return float(node) if number else None


def _bounds(name: str, value: float, metrics: Mapping[str, Any]) -> tuple[float, float]:
    """The interval of a metric: that of its gauge, or of the time that a rate is computed from."""
    middle, low, high = (metrics.get(key) for key in (TIME.name, TIME.low, TIME.high))
    if not (middle and low and high):
        return value, value
    if name in (*(rate.name for rate in RATES), ROOF_FRACTION.name):
        return value * middle / high, value * middle / low
    return value * low / middle, value * high / middle


def _raced(
    claim: Claim, readings: Mapping[Term, Reading], race: Race
) -> tuple[Interval, str] | str | None:
    """The ratio of left to right, from rounds that both trials took part in."""
    if any(term.metric != TIME.name for term in readings):
        return None
    first, second = (readings[term].trial for term in readings)
    found = race(first, second)
    if isinstance(found, str):
        return found
    # speedup = time of the first / time of the second
    a, b = claim.terms
    up_a, up_b = _exponent(a, claim), _exponent(b, claim)
    if up_a == up_b:
        return None
    constant = claim.left.number / claim.right.number
    ratio, low, high = found.speedup, found.ci_low, found.ci_high
    if up_a < 0:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    return Interval(ratio * constant, low * constant, high * constant), found.verdict


def _exponent(term: Term, claim: Claim) -> int:
    return 1 if term in claim.left.above or term in claim.right.below else -1


def _ratio(claim: Claim, readings: Mapping[Term, Reading]) -> Interval:
    """Left over right, with an interval as wide as those of the terms allow."""
    left, right = _side(claim.left, readings), _side(claim.right, readings)
    return _divided(left, right)


def _side(side: Side, readings: Mapping[Term, Reading]) -> Interval:
    value = Interval(side.number, side.number, side.number)
    for term in side.above:
        value = _times(value, readings[term].interval)
    for term in side.below:
        value = _divided(value, readings[term].interval)
    return value


def _times(a: Interval, b: Interval) -> Interval:
    return Interval(a.middle * b.middle, a.low * b.low, a.high * b.high)


def _divided(a: Interval, b: Interval) -> Interval:
    def over(number: float, divisor: float) -> float:
        return number / divisor if divisor else math.inf

    return Interval(over(a.middle, b.middle), over(a.low, b.high), over(a.high, b.low))


def _verdict(claim: Claim, ratio: Interval, *, exact: bool) -> Verdict:
    """The verdict on left / right."""
    least, most = 1 - claim.within - _TOLERANCE, 1 + claim.within + _TOLERANCE
    if claim.operator == "==":
        if least <= ratio.low and ratio.high <= most:
            return "holds"
        return "fails" if exact or ratio.high < least or ratio.low > most else "undecided"
    if claim.operator in (">", "<") and exact and not claim.within:
        good = ratio.middle > 1 if claim.operator == ">" else ratio.middle < 1
        return "holds" if good else "fails"
    if claim.operator in (">=", ">"):
        if ratio.low >= least:
            return "holds"
        return "fails" if ratio.high < least else "undecided"
    if ratio.high <= most:
        return "holds"
    return "fails" if ratio.low > most else "undecided"


def _numbers(
    claim: Claim, readings: Mapping[Term, Reading], ratio: Interval, *, exact: bool
) -> str:
    """The numbers of a judgement as text."""
    if len(readings) == 1:
        ((term, reading),) = readings.items()
        found = reading.interval
        said = _text(term, found.middle)
        if exact:
            return said
        return f"{said}, 95% interval {_text(term, found.low)} to {_text(term, found.high)}"
    each = " and ".join(_text(term, reading.interval.middle) for term, reading in readings.items())
    if exact:
        return each
    return (
        f"{each}; left / right {ratio.middle:.3g}, 95% interval {ratio.low:.3g} to {ratio.high:.3g}"
    )


def _text(term: Term, value: float) -> str:
    if term.peer:
        return f"{value:.3g}"
    metric = metric_named(term.metric, scan=False)
    return metric.with_label(value) if metric else number_text(value)
