"""Claims are read as they are written, and judged by the numbers and intervals of trials."""

from __future__ import annotations

from typing import Any

import pytest

from kernloom.base.errors import ConfigError
from kernloom.measure.comparison import Comparison
from kernloom.measure.trial import Trial
from kernloom.recipe.claims import Described, described, parse_claim
from kernloom.recipe.judging import Judgement, judge

EXACT = {
    "instructions": 967,
    "virtual_ns": 4500.25,
    "deterministic": ["instructions", "virtual_ns"],
}
TIMED = {"median_ns": 100.0, "ci_low_ns": 98.0, "ci_high_ns": 103.0, "gflops": 50.0}
PEERS = {"openblas": {"ratio": 1.10, "ci_low": 1.08, "ci_high": 1.12, "median_ns": 110.0}}


def trial(number: int = 0, metrics: Any = None, **more: Any) -> Trial:
    given = {"status": "ok", "verified": True, "target": "host", "case": "small", **more}
    found = {**EXACT, **TIMED, "peers": PEERS} if metrics is None else metrics
    return Trial(id=f"{number:016x}", workload="axpy", metrics=found, **given)


def judged(text: str, *trials: Trial, race: Comparison | str = "no race") -> Judgement:
    known = [described(one, "12.2.0") for one in trials or (trial(),)]
    return judge(parse_claim(text, key="claims[0]"), known, lambda a, b: race)


HOLDS = [
    "instructions == 967",
    "instructions <= 967",
    "instructions >= 967",
    "instructions < 968",
    "966 < instructions",
    "2 * instructions > 1933",
    "instructions / 2 < 484",
    "instructions == 1000 within 5%",
    "virtual_ns == 4500.25",
    "virtual_ns <= 1.2e6",
    "vs openblas >= 1.05",
    "vs openblas >= 1.12 within 5%",
    "1.2 >= vs openblas",
    "median_ns <= 103",
    "median_ns == 100 within 5%",
    "gflops >= 48",
    "instructions == 967 on target=host",
    "instructions == 967 on target=host case=small workload=axpy compiler=12.2",
    "virtual_ns / instructions < 5",
]
FAILS = [
    "instructions == 966",
    "instructions > 967",
    "instructions < 967",
    "instructions == 1000 within 3%",
    "vs openblas >= 1.13",
    "median_ns <= 97",
    "median_ns == 120 within 5%",
    "gflops >= 52",
]
UNDECIDED = {
    "median_ns <= 100": "98.0 ns to 103 ns",
    "vs openblas >= 1.10": "more rounds may decide it",
    "gflops >= 50": "interval 48.5 GFLOP/s to 51.0 GFLOP/s",
    "vs numpy >= 1": "was not measured beside numpy; its peers are openblas",
    "roof_fraction >= 0.5": "doctor --calibrate",
    "kernel_ns <= 5": "has no kernel_ns; it has instructions",
    "instructions == 967 on target=aarch64": "no trial has target=aarch64",
    "instructions == 967 on compiler=13": "no trial has compiler=13",
    "instructions(vectors=4) < instructions(vectors=1)": "no trial is of instructions(vectors=4)",
}


@pytest.mark.parametrize("text", HOLDS)
def test_a_claim_that_holds(text: str) -> None:
    assert judged(text).verdict == "holds", judged(text)


@pytest.mark.parametrize("text", FAILS)
def test_a_claim_that_fails(text: str) -> None:
    assert judged(text).verdict == "fails", judged(text)


@pytest.mark.parametrize("text", UNDECIDED)
def test_a_claim_that_cannot_be_decided_says_why(text: str) -> None:
    found = judged(text)
    assert found.verdict == "undecided"
    assert UNDECIDED[text] in found.reason


def test_a_claim_is_about_every_trial_that_it_matches() -> None:
    more = [trial(0), trial(1, {**EXACT, "instructions": 2000}, target="aarch64")]
    assert judged("instructions == 967", *more).verdict == "fails"
    assert "1 of 2" in judged("instructions == 967", *more).reason
    assert judged("instructions == 967 on target=host", *more).verdict == "holds"


@pytest.mark.parametrize("status", ["wrong", "refused", "crashed"])
def test_a_trial_that_is_not_right_proves_no_claim(status: str) -> None:
    bad = trial(0, status=status, verified=False)
    assert judged("instructions == 967", bad).verdict == "fails"
    assert status in judged("instructions == 967", bad).reason


def test_an_unavailable_target_decides_nothing() -> None:
    away = trial(0, {}, status="unavailable", verified=False, message="no qemu")
    found = judged("instructions == 967", away)
    assert (found.verdict, found.reason) == ("undecided", "host: no qemu")


def pair(name: str, key: str, first: Any, second: Any) -> list[Trial]:
    return [
        trial(number, {**EXACT, **TIMED, name: value}, point={key: swept})
        for number, (swept, value) in enumerate([first, second])
    ]


def test_trials_are_found_by_the_last_part_of_a_swept_key_and_by_a_tunable() -> None:
    swept = pair("instructions", "select.fixed.unroll.vectors", (4, 900), (1, 1200))
    claim = "instructions(vectors=4) < instructions(vectors=1)"
    assert judged(claim, *swept).verdict == "holds"
    params = {"unroll": {"add": {"vectors": 4}}}
    assert described(trial(0, params=params)).has([("vectors", "4")])
    assert described(trial(0, point={"workload.sizes.N": 64})).has([("N", "64.0")])


def test_pairs_differ_in_the_named_values_only() -> None:
    sizes = [
        trial(n * 2 + v, {**EXACT, "instructions": 100 * n + v}, point={"N": n, "vectors": v})
        for n in (1, 2)
        for v in (0, 1)
    ]
    found = judged("instructions(vectors=0) < instructions(vectors=1)", *sizes)
    assert found.verdict == "holds" and "2 of 2" in found.reason
    # The toolchain follows from the target here: it was not swept.
    other = pair("instructions", "target", ("a", 1), ("b", 2))
    assert judged("instructions(target=a) < instructions(target=b)", *other).verdict == "holds"


RACES = [
    ("<", Comparison("left", "right", 0.5, 0.48, 0.52, "slower", 20), "holds"),
    (">", Comparison("left", "right", 0.5, 0.48, 0.52, "slower", 20), "fails"),
    ("<", Comparison("left", "right", 1.0, 0.995, 1.004, "equivalent", 20), "fails"),
    ("<", Comparison("left", "right", 0.98, 0.95, 1.01, "inconclusive", 20), "undecided"),
]


@pytest.mark.parametrize(("sign", "race", "verdict"), RACES)
def test_two_times_are_judged_by_rounds_of_both(sign: str, race: Comparison, verdict: str) -> None:
    swept = pair("median_ns", "vectors", (4, 50.0), (1, 100.0))
    claim = f"median_ns(vectors=4) {sign} median_ns(vectors=1)"
    assert judged(claim, *swept, race=race).verdict == verdict
    assert judged(claim, *swept, race="it did not build").reason == "it did not build"


FACTORS = {
    "median_ns(vectors=4) < 0.6 * median_ns(vectors=1)": "holds",
    "median_ns(vectors=4) < 0.4 * median_ns(vectors=1)": "fails",
    "median_ns(vectors=1) / median_ns(vectors=4) >= 1.9": "holds",
    "median_ns(vectors=1) / median_ns(vectors=4) >= 2.2": "fails",
    "median_ns(vectors=4) / median_ns(vectors=1) <= 0.52": "holds",
    "2 * median_ns(vectors=4) >= median_ns(vectors=1) within 5%": "holds",
}


@pytest.mark.parametrize("text", FACTORS)
def test_a_factor_between_two_times_counts(text: str) -> None:
    swept = pair("median_ns", "vectors", (4, 50.0), (1, 100.0))

    def race(a: Trial, b: Trial) -> Comparison:
        speedup = a.metrics["median_ns"] / b.metrics["median_ns"]
        return Comparison("", "", speedup, speedup * 0.97, speedup * 1.03, "faster", 20)

    found = judge(parse_claim(text, key=""), [described(one) for one in swept], race)
    assert found.verdict == FACTORS[text], found


BAD = {
    "": "does not compare two sides",
    "instructions": "does not compare two sides",
    "1 < instructions < 5": "does not compare two sides",
    "1 < 2": "has 0 measured numbers",
    "instructions + 1 > 5": "is no metric",
    "instrctions == 5": "Did you mean 'instructions'",
    "median_ns == 100": "never equals a number",
    "instructions == 5 within 100%": "allows anything",
    "instructions > 0": "compares with 0",
    "instructions / 0 > 1": "divides by 0",
    "instructions(vectors) > 1": "is not key=value",
    "instructions == 5 on host": "is not key=value",
    "vs 'x; rm' > 1": "is no metric",
    "virtual_ns / median_ns > instructions": "has 3 measured numbers",
    "instructions > 1e999": "is no number that can be compared",
    "x" * 600: "at most 500",
}


@pytest.mark.parametrize("text", BAD)
def test_a_claim_that_cannot_be_read_is_explained(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_claim(text, key="my.yaml: claims[0]")
    assert BAD[text] in str(refused.value)
    assert str(refused.value).startswith("my.yaml: claims[0]")


@pytest.mark.parametrize("value", [None, 3, ["a < b"], {"a": 1}])
def test_a_claim_is_a_text(value: Any) -> None:
    with pytest.raises(ConfigError, match="a claim is a text"):
        parse_claim(value, key="claims[0]")


def test_values_are_those_of_the_trial() -> None:
    found: Described = described(trial(0, point={"a.b": True}), "12.2.0")
    assert found.has([("b", "true"), ("a.b", "true"), ("compiler", "12")])
    assert not found.has([("compiler", "1")])
