"""Intervals hold for longer than the look: the rounds, drift within them, and earlier attempts."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import median

import pytest

from kernloom.measure.drift import (
    ASSUMED,
    EPISODE_S,
    MOST,
    Drift,
    Look,
    disturbed,
    drift_metrics,
    drift_of,
    episodes,
    excludes,
    look_of,
    looked,
    same_rounds,
    spread_of_blocks,
    student,
    times_text,
    widened,
)
from kernloom.measure.statistics import Interval
from kernloom.measure.trial import Samples, Trial

START = datetime(2026, 1, 1, tzinfo=UTC)
ASSUMPTION = 0.015


def processes(times: list[float]) -> list[Samples]:
    return [Samples(1, (time,) * 3, (time,) * 3, (0, 0, 0)) for time in times]


def look(second: float, ns: float) -> Look:
    return Look(START + timedelta(seconds=second), ns)


def trial(low: float, high: float, **changes: object) -> Trial:
    metrics = {"median_ns": (low + high) / 2, "ci_low_ns": low, "ci_high_ns": high}
    made = Trial("id", "w", "default", "host", "ok", True, metrics=metrics)
    return replace(made, created=START.isoformat(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("probability", "freedom", "known"),
    [(0.975, 3, 3.182), (0.975, 4, 2.776), (0.975, 10, 2.228), (0.975, 100, 1.984)],
)
def test_students_quantiles_are_within_a_percent(
    probability: float, freedom: float, known: float
) -> None:
    assert student(probability, freedom) == pytest.approx(known, rel=0.01)


def test_without_attempts_the_policys_assumption_holds():
    drift = drift_of(ASSUMPTION, 0.0)
    assert drift.deviation == pytest.approx(ASSUMPTION)
    assert drift.freedom == ASSUMED
    assert drift.reach == pytest.approx(ASSUMPTION * 3.18, rel=0.01)


def test_rounds_that_drift_raise_the_assumption():
    steady = spread_of_blocks(processes([100.0] * 8), "cpu")
    rising = spread_of_blocks(processes([100 + 2.0 * n for n in range(8)]), "cpu")
    assert steady == 0.0
    assert drift_of(ASSUMPTION, steady).deviation == pytest.approx(ASSUMPTION)
    assert drift_of(ASSUMPTION, rising).deviation > 4 * ASSUMPTION
    assert spread_of_blocks(processes([1.0, 2.0, 3.0]), "cpu") == 0.0


def test_a_round_that_was_disturbed_is_no_drift():
    found = drift_metrics(processes([63.0] * 7 + [6500.0]), "wall", ASSUMPTION)
    assert found["drift"] == pytest.approx(ASSUMPTION)
    assert found["ci_high_ns"] < 2 * 63


def test_disturbed_rounds_widen_an_interval_no_further_than_drift_can():
    rounds = processes([63.0] * 20 + [6500.0] * 4)
    found = drift_metrics(rounds, "wall", ASSUMPTION)
    assert found["drift"] == pytest.approx(MOST)
    assert found["ci_high_ns"] < 6 * 63
    assert "rounds differ by up to a factor of 103" in disturbed(rounds, "wall")
    assert disturbed(processes([100.0 + n for n in range(8)]), "wall") == ""


def test_an_attempt_on_a_disturbed_machine_counts_no_more_than_drift():
    looks = [look(0, 63), look(2 * EPISODE_S, 1e6)]
    assert drift_of(ASSUMPTION, 0.0, looks).deviation < MOST
    calm = [look(EPISODE_S * n, 63) for n in range(1, 20)]
    assert drift_of(ASSUMPTION, 0.0, [*looks[1:], *calm]).deviation < 0.12


def test_a_look_of_many_minutes_averages_their_drift():
    short, long = (drift_of(ASSUMPTION, 0.0, seconds=seconds) for seconds in (5, 9 * EPISODE_S))
    assert short == drift_of(ASSUMPTION, 0.0)
    assert long.reach == pytest.approx(short.reach / 3)


def test_attempts_within_a_minute_are_one_episode():
    looks = [look(second, 100) for second in (0, 20, 59, 61, 130)]
    assert [len(found) for found in episodes(looks)] == [3, 1, 1]
    assert episodes(looks[::-1]) == episodes(looks)
    hasty = drift_of(ASSUMPTION, 0.0, [look(second, 100) for second in range(40)])
    assert hasty.freedom == ASSUMED


def test_attempts_that_agree_narrow_the_interval_and_others_widen_it():
    steady = [look(EPISODE_S * n, 100 * (1 + 1e-4 * (-1) ** n)) for n in range(20)]
    shaky = [look(EPISODE_S * n, 100 * (1 + 0.1 * (-1) ** n)) for n in range(20)]
    assert drift_of(ASSUMPTION, 0.0, steady).reach < ASSUMPTION
    assert drift_of(ASSUMPTION, 0.0, shaky).deviation == pytest.approx(0.1, rel=0.1)


def test_an_interval_is_that_of_the_rounds_and_the_drift_together():
    found = widened(Interval(100, 99, 102), Drift(0.02, 1000))
    assert found.middle == 100
    assert found.low == pytest.approx(100 * math.exp(-math.hypot(math.log(100 / 99), 0.0392)), 1e-4)
    assert found.high == pytest.approx(100 * math.exp(math.hypot(math.log(1.02), 0.0392)), 1e-4)
    assert widened(Interval(0, 0, 0), Drift(0.02, 10)) == Interval(0, 0, 0)


def test_a_policy_without_drift_keeps_the_interval_of_its_rounds():
    assert drift_metrics(processes([1.0] * 8), "cpu", 0.0) == {}
    found = drift_metrics(processes([100.0, 101.0] * 4), "cpu", ASSUMPTION)
    assert found["ci_low_ns"] < found["rounds_low_ns"] <= found["rounds_high_ns"]
    assert found["rounds_high_ns"] < found["ci_high_ns"]
    assert found["drift"] >= ASSUMPTION


def test_attempts_disagree_if_their_intervals_have_nothing_in_common():
    assert excludes(trial(90, 100), trial(101, 110))
    assert excludes(trial(101, 110), trial(90, 100))
    assert not excludes(trial(90, 102), trial(101, 110))
    assert not excludes(trial(90, 100, status="crashed"), trial(101, 110))
    assert not excludes(trial(90, 100, metrics={}), trial(101, 110))


def test_a_look_is_read_back_and_compared_with_others():
    def seen(begin: float, end: float) -> tuple[datetime, datetime]:
        return (START + timedelta(seconds=begin), START + timedelta(seconds=end))

    assert looked({"looked": times_text(*seen(0, 4))}) == seen(0, 4)
    assert looked({}) is None and looked({"looked": ["yesterday"]}) is None
    assert same_rounds(seen(0, 4), seen(1, 9))
    assert not same_rounds(seen(0, 4), seen(3, 7))
    assert not same_rounds(seen(0, 4), seen(5, 7))
    assert not same_rounds(None, seen(5, 7))
    assert look_of(trial(1, 1, verified=False)) is None


class Machine:
    """A simulated machine: noise of each process, and modes of speed that last for minutes."""

    def __init__(self, seed: int, modes: float, noise: float) -> None:
        self._random = Random(seed)
        self._modes, self._noise = modes, noise
        self._mode, self._until = 0.0, 0.0

    def round(self, second: float) -> float:
        while second >= self._until:
            self._mode = self._random.gauss(0, self._modes)
            self._until += self._random.expovariate(1 / 90)
        return 1000 * math.exp(self._mode + self._random.gauss(0, self._noise))


def coverage(modes: float, noise: float, seed: int, assumed: float, first: int = 0) -> float:
    """The share of 50 runs in ten minutes whose interval contains the median of all, from one of
    them on."""
    machine = Machine(seed, modes, noise)
    runs: list[tuple[float, dict[str, float]]] = []
    looks: list[Look] = []
    for number in range(50):
        rounds = [machine.round(12 * number + 0.5 * n) for n in range(8)]
        looks.append(look(12 * number, median(rounds)))
        found = drift_metrics(processes(rounds), "cpu", assumed, looks)
        runs.append((median(rounds), found))
    middle = median(time for time, _ in runs)
    low, high = (
        ("ci_low_ns", "ci_high_ns") if assumed > 1e-9 else ("rounds_low_ns", "rounds_high_ns")
    )
    judged = [found[low] <= middle <= found[high] for _, found in runs[first:]]
    return sum(judged) / len(judged)


@pytest.mark.parametrize(("modes", "first"), [(0.002, 0), (0.01, 0), (0.02, 0), (0.1, 25)])
def test_at_least_nine_of_ten_intervals_contain_the_median_of_ten_minutes(
    modes: float, first: int
) -> None:
    """A machine that drifts far more than assumed has to show it first."""
    found = [coverage(modes, 0.005, seed, ASSUMPTION, first) for seed in range(20)]
    assert sum(found) / len(found) >= 0.9


def test_the_rounds_alone_do_not():
    found = [coverage(0.02, 0.005, seed, 1e-12) for seed in range(20)]
    assert sum(found) / len(found) < 0.5
