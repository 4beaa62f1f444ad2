"""What rounds allow to be said of two contenders, and when there have been enough of them."""

from __future__ import annotations

import math
import random

import pytest

from kernloom.base.errors import DeviceError
from kernloom.base.places import share_folder
from kernloom.config.convert import convert
from kernloom.config.reader import load_yaml
from kernloom.config.schema import Policy
from kernloom.measure.comparison import (
    Race,
    counted,
    enough,
    holm,
    judged,
    paired,
    race,
    verdict_of,
)
from kernloom.measure.trial import Samples

PAIR = [("a", "b")]


class Contender:
    """Stands in for a device: times with the noise of a process around a true one."""

    def __init__(self, time: float, noise: float, seed: int, fails_after: int = 1000) -> None:
        self._time, self._noise = time, noise
        self._random = random.Random(seed)
        self._left = fails_after

    def sample(self, *, fresh: bool = True) -> Samples:
        if self._left == 0:
            raise DeviceError("SIGSEGV", status="crashed")
        self._left -= 1
        time = self._time * (1 + self._random.gauss(0, self._noise))
        return Samples(1, (time,) * 3, (time,) * 3, (0,) * 3)

    def count(self) -> int:
        return 1


def policy(**changed: object) -> Policy:
    text = (share_folder() / "configs" / "measure" / "rigorous.yaml").read_text()
    return convert(Policy, {**load_yaml(text, where="rigorous"), **changed}, "measure")


def compared(b: float, noise: float, seed: int, **changed: object):
    rules = policy(**changed)
    both = {"a": Contender(100, noise, seed), "b": Contender(b, noise, seed + 10_000)}
    done = race(both, PAIR, rules, "cpu", seed=seed)
    return judged(paired(done, PAIR, "cpu"), rules.floor)[0], done


def test_the_same_kernel_is_hardly_ever_called_different():
    verdicts = [compared(100, 0.01, seed)[0].verdict for seed in range(300)]
    assert sum(verdict in ("faster", "slower") for verdict in verdicts) <= 6


def test_two_percent_more_time_is_found():
    verdicts = [compared(102, 0.01, seed)[0].verdict for seed in range(300)]
    assert verdicts.count("slower") >= 270
    assert "faster" not in verdicts


def test_rounds_end_when_the_ratio_is_precise_and_not_when_it_looks_significant():
    found, done = compared(120, 0.001, 1)
    assert found.verdict == "slower"
    assert found.rounds == policy().min_rounds
    assert done.ended == ""


def test_noise_that_rounds_cannot_beat_is_inconclusive_and_said():
    found, done = compared(101, 0.3, 1, max_rounds=12)
    assert found.verdict == "inconclusive"
    assert "after 12 rounds (measure.max_rounds)" in done.ended


def test_a_budget_too_short_for_the_rounds_is_named():
    found, done = compared(100, 0.01, 1, budget_s=0)
    assert found.verdict == "inconclusive"
    assert "the budget of 0 s ended after 1 of at least 20 rounds" in done.ended


def test_the_speedup_is_above_one_where_the_second_is_faster():
    found, _ = compared(50, 0.001, 1)
    assert found.verdict == "faster"
    assert found.speedup == pytest.approx(2, rel=0.01)
    assert found.ci_low <= found.speedup <= found.ci_high


def test_a_contender_that_fails_on_the_way_leaves_the_others_to_it():
    pairs = [("a", "b"), ("a", "c")]
    contenders = {
        "a": Contender(100, 0.001, 1),
        "b": Contender(100, 0.001, 2, fails_after=3),
        "c": Contender(110, 0.001, 3),
    }
    done = race(contenders, pairs, policy(), "cpu", seed=0)
    [found] = judged(paired(done, pairs, "cpu"), 0.01)
    assert (found.b, found.verdict) == ("c", "slower")
    assert done.problems["b"].message == "SIGSEGV"


def test_differences_below_the_floor_are_equivalent_and_unclear_ones_inconclusive():
    assert verdict_of(0.005, 0.003, 0.007, 0.01, significant=True) == "equivalent"
    assert verdict_of(0.009, 0.001, 0.02, 0.01, significant=True) == "inconclusive"
    assert verdict_of(0.03, 0.02, 0.04, 0.01, significant=True) == "faster"
    assert verdict_of(-0.03, -0.04, -0.02, 0.01, significant=True) == "slower"
    assert verdict_of(0.03, -0.02, 0.08, 0.01, significant=False) == "inconclusive"


def test_holm_asks_more_of_each_the_more_there_are():
    assert holm([0.03]) == [True]
    assert holm([0.03, 0.03, 0.03]) == [False, False, False]
    assert holm([0.01, 0.04, 0.02]) == [True, True, True]
    assert holm([0.04, 0.001, 0.2]) == [False, True, False]


def test_counts_are_exact_and_need_no_rounds():
    found = counted("a", "b", {"a": 200, "b": 100}, 0.01)
    assert (found.speedup, found.verdict, found.rounds) == (2, "faster", 1)
    assert counted("a", "b", {"a": 1000, "b": 1001}, 0.01).verdict == "equivalent"


def test_a_few_rounds_cannot_prove_anything():
    few = [Samples(1, (time,), (time,), (0,)) for time in (100, 101, 99)]
    many = [Samples(1, (time,), (time,), (0,)) for time in (200, 201, 199)]
    [found] = judged(paired(Race({}, {"a": many, "b": few}), PAIR, "cpu"), 0.01)
    assert found.verdict == "inconclusive"
    assert math.isclose(found.speedup, 2, rel_tol=0.01)


@pytest.mark.parametrize("count", [1, 3, 26, 60])
def test_rounds_go_on_until_the_clearest_of_many_differences_can_be_called_one(count: int):
    pairs = [(f"a{number}", f"b{number}") for number in range(count)]
    ratios = {}
    for number, pair in enumerate(pairs):
        both = {pair[0]: Contender(100, 5e-4, number), pair[1]: Contender(200, 5e-4, number + 999)}
        done = race(both, [pair], policy(min_rounds=2), "cpu", comparisons=count, seed=number)
        assert done.rounds >= enough(count)
        ratios |= paired(done, [pair], "cpu")
    assert {found.verdict for found in judged(ratios, 0.01)} == {"slower"}


def test_too_few_rounds_for_so_many_comparisons_are_said():
    found, done = compared(200, 5e-4, 1, min_rounds=2, max_rounds=3)
    assert found.verdict == "inconclusive"
    assert "3 rounds (measure.max_rounds) cannot prove a difference" in done.ended
