"""What the rounds of a race tell of an objective, and which objectives need no race."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernloom.measure.statistics import metrics_of
from kernloom.measure.trial import Samples, Trial
from kernloom.tune.document import _value_text
from kernloom.tune.objective import objectives_of
from kernloom.tune.racing import Leader, RaceTrack
from kernloom.tune.rounds import costs_by_round, log_gains
from kernloom.tune.study import Evaluated, History


def trial(name: str = "id", **metrics: Any) -> Trial:
    return Trial(name, "w", "default", "host", "ok", True, metrics=metrics)


def measured(name: str, *rounds: float) -> Trial:
    """A trial of as many processes, each with three samples; wall time is twice the CPU time."""
    samples = tuple(
        Samples(1, (2 * ns, 2 * ns, 3 * ns), (ns, ns, 2 * ns), (0, 0, 0)) for ns in rounds
    )
    found = trial(name, **metrics_of(samples, "cpu", flops=1000.0))
    return replace(found, samples=samples, conditions={"clock": "cpu"})


@pytest.mark.parametrize(
    ("asked", "costs"),
    [
        (None, (100, 120)),
        ("gflops", (-1000 / 100, -1000 / 120)),
        ("cpu_ns + wall_ns", (300, 360)),
        ("cpu_ns * processes", (200, 240)),
        ("wall_ns / gflops", (20, 240 / (1000 / 120))),
        ("1 / (median_ns - 100)", ()),
        ("cpu_ns * (1 + outlier_share)", ()),
        ("processes", ()),
    ],
)
def test_an_objective_has_a_cost_in_every_round(asked: str, costs: tuple[float, ...]) -> None:
    (objective,) = objectives_of(asked)
    one = measured("a", 100, 120)
    assert costs_by_round(objective, one, one.samples) == pytest.approx(costs)
    assert costs_by_round(objective, one, ()) == ()


def test_a_gain_is_above_one_for_what_is_better_and_needs_costs_of_one_sign() -> None:
    assert log_gains([2.0, 4.0], [4.0, 4.0, 9.0]) == pytest.approx([-math.log(2), 0])
    assert log_gains([-4.0], [-2.0]) == pytest.approx([-math.log(2)])
    assert log_gains([1.0, -1.0], [1.0, 1.0]) == []
    assert log_gains([0.0], [1.0]) == []


@pytest.mark.parametrize(
    ("asked", "exact"),
    [
        (None, True),
        ("instructions", True),
        ("hbm_bytes * 2", True),
        ("hbm_bytes * samples", True),
        ("median_ns", False),
        ("instructions * median_ns", False),
        (["instructions", "wall_ns"], False),
        (["instructions", "hbm_bytes"], True),
    ],
)
def test_a_race_is_left_out_only_if_all_that_is_minimised_is_exact(asked: Any, exact: bool) -> None:
    one = trial(
        **{"instructions": 5, "median_ns": 2.0, "wall_ns": 3.0, "hbm_bytes": 8, "samples": 7},
        deterministic=["instructions", "hbm_bytes"],
    )
    assert all(objective.is_exact(one) for objective in objectives_of(asked)) == exact
    assert not objectives_of("median_ns")[0].is_exact(trial(median_ns=2.0, deterministic=[]))


class Track(RaceTrack):
    """A race whose rounds are given."""

    def __init__(self, asked: Any, trials: dict[int, Trial]) -> None:
        search = SimpleNamespace(leaders=5, stages=1)
        plan: Any = SimpleNamespace(search=search, models=(), racing="standard")
        super().__init__(plan, objectives_of(asked), None, lambda trial: trial.samples)  # type: ignore[arg-type]
        self._trials = trials

    def _measured(self, leaders: Any, stage: int, found: Any) -> Any:
        raced = [self._trials[one.point["n"]] for one in leaders]
        policy = SimpleNamespace(floor=0.01)
        return [
            replace(one, trial=trial, costs=self._costs(trial))
            for one, trial in zip(leaders, raced, strict=True)
        ], policy

    def leaders(self) -> list[Leader]:
        history = History()
        for number, one in self._trials.items():
            costs = self._costs(one)
            assert costs
            history.all.append(Evaluated({"n": number}, one, costs, "search"))
        return self.race(history).leaders


@pytest.mark.parametrize("asked", ["cpu_ns + wall_ns", "cpu_ns", "median_ns", "-gflops", "gflops"])
def test_rounds_separate_the_leaders_of_any_objective(asked: str) -> None:
    best = [100 + n % 3 for n in range(16)]
    trials = {
        1: measured("a", *best),
        2: measured("b", *(1.001 * ns for ns in best)),
        3: measured("c", *(1.2 * ns for ns in best)),
    }
    found = Track(asked, trials).leaders()
    assert [one.verdict for one in found] == ["best", "equal", "worse"]
    worse = found[2].comparison
    assert worse is not None
    assert worse.speedup == pytest.approx(1 / 1.2)
    (objective,) = objectives_of(asked)
    assert "±" in _value_text(objective, found[0], 0)


def test_noise_is_no_exact_difference_although_another_metric_is_exact() -> None:
    best = [100 + n % 3 for n in range(16)]
    trials = {
        number: replace(one, metrics={**one.metrics, "kernels": 3, "deterministic": ["kernels"]})
        for number, one in {
            1: measured("a", *best),
            2: measured("b", *(1.001 * ns for ns in best)),
        }.items()
    }
    assert [one.verdict for one in Track("median_ns", trials).leaders()] == ["best", "equal"]


def test_exact_formulas_are_compared_by_their_values() -> None:
    trials = {number: trial(str(number), a=number, deterministic=["a"]) for number in (2, 3, 2)} | {
        4: trial("4", a=2, deterministic=["a"])
    }
    found = Track("a * 2", trials).leaders()
    assert [one.verdict for one in found] == ["best", "equal", "worse"]
    assert [one.comparison.speedup for one in found if one.comparison] == pytest.approx([1, 2 / 3])
