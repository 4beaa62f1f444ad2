"""The parts of a study that need no device: spaces, objectives, limits, fronts, importance."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import product
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kernloom.base.errors import ConfigError
from kernloom.cli.tuning.words import LONG_ONLY, SHORT, with_long_names
from kernloom.config.settings import SearchSettings
from kernloom.measure.trial import Trial
from kernloom.report.studies import closing_line, value_text
from kernloom.tune import winner
from kernloom.tune.document import ratio_to_best
from kernloom.tune.importance import importances
from kernloom.tune.limits import LEAST_S, Limits
from kernloom.tune.objective import objectives_of
from kernloom.tune.pareto import front, spread
from kernloom.tune.racing import Leader, RaceResult, RaceTrack
from kernloom.tune.scalars import Scalars
from kernloom.tune.study import Evaluated, History
from kernloom.tune.winner import Verified


def trial(status: str = "ok", **metrics: Any) -> Trial:
    return Trial("id", "w", "default", "host", status, status == "ok", metrics=metrics)


def test_every_search_setting_has_a_short_name_unless_another_key_has_it() -> None:
    assert {*SHORT, *LONG_ONLY} == {field.name for field in fields(SearchSettings)}
    assert with_long_names(["trials=3", "workload=x", "seed=2", "-m"]) == (
        *("search.trials=3", "workload=x", "seed=2", "-m"),
    )


@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        (None, 200.0),
        ("median_ns", 200.0),
        ("gflops", -4.0),
        ("median_ns / gflops", 50.0),
        ("peers.numpy.ratio", -2.0),
        ("1 / (gflops - 4)", None),
    ],
)
def test_an_objective_is_a_gauge_a_metric_or_a_formula(asked: str, cost: float | None) -> None:
    (objective,) = objectives_of(asked)
    metrics = {"median_ns": 200.0, "gflops": 4.0, "peers": {"numpy": {"ratio": 2.0}}}
    assert objective.cost(trial(**metrics)) == cost
    assert objective.cost(trial("wrong", **metrics)) is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("2 + 3", "names no metric"),
        ("a, b", "is no formula"),
        ("open('x')", "unknown function"),
        ([], "has no objective"),
        (["a", "a"], "named twice"),
    ],
)
def test_a_wrong_objective_is_refused_before_anything_runs(asked: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        objectives_of(asked)


def test_an_unknown_metric_names_the_nearest() -> None:
    (objective,) = objectives_of("gflop")
    with pytest.raises(ConfigError, match="no metric 'gflop'") as error:
        objective.cost(trial(gflops=1.0))
    assert "Did you mean 'gflops'" in error.value.hint


def test_the_front_is_what_nothing_beats_in_every_objective() -> None:
    random = Random(1)
    for _ in range(200):
        points = [(random.randint(0, 6), random.randint(0, 6)) for _ in range(12)]
        found = front(points, lambda costs: costs)
        expected = {
            one
            for one in points
            if not any(o != one and o[0] <= one[0] and o[1] <= one[1] for o in points)
        }
        assert set(found) == expected
        assert len(found) == len(expected), "equal points are one"


def test_of_a_long_front_both_ends_are_kept() -> None:
    assert spread([1, 2, 3], 3) == [1, 2, 3]
    assert spread(list(range(11)), 3) == [0, 5, 10]
    assert spread(list(range(11)), 2) == [0, 10]


def test_every_point_of_an_exact_front_is_best() -> None:
    objectives = objectives_of(["a", "b"])
    plan: Any = SimpleNamespace(search=SimpleNamespace(leaders=5, stages=3), models=())
    track = RaceTrack(plan, objectives, None, lambda trial: ())  # type: ignore[arg-type]
    history = History()
    for number, costs in enumerate([(1.0, 3.0), (2.0, 2.0), (2.0, 3.0), (3.0, 1.0)]):
        measured = replace(trial(deterministic=["a", "b"]), id=str(number))
        history.all.append(Evaluated({"n": number}, measured, costs, "search"))
    found = track.race(history).leaders
    assert [(one.point["n"], one.verdict) for one in found] == [
        (0, "best"),
        (1, "best"),
        (3, "best"),
    ]


def test_what_follows_a_wrong_winner_is_not_compared_with_it() -> None:
    def leader(cost: float, verdict: Any) -> Leader:
        one = Evaluated({"n": cost}, trial(), (cost,), "search")
        return Leader(one.point, one.trial, one.costs, one, verdict)

    race = RaceResult([leader(1.0, "best"), leader(3.0, "equal"), leader(2.0, "worse")])

    def cases(plan: Any, point: Any, execution: Any, *, measured: bool) -> Verified:
        return Verified((trial("wrong" if point["n"] == 1.0 else "ok"),))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winner, "at_point", lambda point: point)
        patch.setattr(winner, "verified_cases", cases)
        race, verified = winner.verified_winner(None, race, lambda: None, measured=True)  # type: ignore[arg-type, return-value]
    assert verified is not None
    assert [(one.point["n"], one.verdict) for one in race.leaders] == [
        *((2.0, "best"), (3.0, "undecided"), (1.0, "failed")),
    ]


def test_the_ratio_to_the_best_is_above_one_for_what_is_worse() -> None:
    assert ratio_to_best(3.0, 2.0) == 1.5
    assert ratio_to_best(-2.0, -3.0) == 1.5, "costs of a maximised metric"


def test_limits_follow_the_best_and_never_exceed_the_configured_one() -> None:
    limits = Limits(10, timeout=60)
    assert limits.timeout is None
    limits.seen(Trial("", "w", "c", "t", "ok", True, seconds=0.01), 5.0)
    assert limits.timeout == LEAST_S
    limits.seen(Trial("", "w", "c", "t", "ok", True, seconds=1.0), 6.0)
    assert limits.timeout == LEAST_S, "a worse point changes nothing"
    limits.seen(Trial("", "w", "c", "t", "ok", True, seconds=1.0), 4.0)
    assert limits.timeout == 16.0
    limits.seen(Trial("", "w", "c", "t", "ok", True, seconds=30.0), 3.0)
    assert limits.timeout is None
    stopped = Trial("", "w", "c", "t", "timeout", False, config={"timeout": 2.0})
    assert "search.limit=10" in limits.explained(stopped).message
    own = Trial("", "w", "c", "t", "timeout", False, config={"timeout": 60.0})
    assert limits.explained(own) == own
    assert Limits(None, 60).timeout is None


def test_weights_of_several_objectives_take_turns() -> None:
    scalars = Scalars(2)
    seen = []
    for _ in range(3):
        scalars.next()
        seen.append(scalars.value((math.e - 1, 0.0)))
    assert seen == pytest.approx([0.5, 0.9, 0.1])
    assert scalars.value(None) is None
    assert Scalars(1).value((7.0,)) == 7.0


def test_importance_finds_what_matters_and_never_explains_more_than_there_is() -> None:
    points = [{"a": a, "b": b, "c": c} for a, b, c in product((1, 2, 4), (0, 1), (7,))]
    evaluated = [
        Evaluated(point, trial(), (100.0 * point["a"] + point["b"],), "search") for point in points
    ]
    found = importances(evaluated)
    assert found[0].key == "a"
    assert found[0].best == 1
    assert found[0].share > 0.99
    assert sum(one.share for one in found) <= 1
    assert "c" not in {one.key for one in found}, "it has one value"
    assert importances(evaluated[:2]) == []


def test_the_closing_line_says_what_was_done_and_why_it_ended() -> None:
    study = {
        **{"points": 5400, "combinations": 9000, "evaluated": 60, "known": 8, "failed": 2},
        **{"seconds": 12.3, "ended": "60 points (search.trials)"},
    }
    assert closing_line({"study": study}) == (
        "60 of 5,400 points in 12.3 s (8 known, 2 failed); ended: 60 points (search.trials)"
    )


def test_points_of_a_study_are_grouped_by_what_failed() -> None:
    from kernloom.tune.document import failures_of

    bad = [SimpleNamespace(status="wrong", message="y[0] is 1\nmore", good=False)] * 2
    bad += [SimpleNamespace(status="timeout", message="late\nstopped after 2 s", good=False)]
    bad += [SimpleNamespace(status="wrong", message="y[17] is -1.5e-3", good=False)]
    good = [SimpleNamespace(status="ok", message="", good=True)]
    assert failures_of([*bad, *good]) == [  # type: ignore[list-item]
        {"status": "wrong", "reason": "y[0] is 1", "points": 3},
        {"status": "timeout", "reason": "stopped after 2 s", "points": 1},
    ]


def test_values_are_shown_as_they_are_typed() -> None:
    values = (True, None, 8, "gcc", ["-O3", "-g"], [])
    assert [value_text(one) for one in values] == ["true", "null", "8", "gcc", "[-O3,-g]", "[]"]
