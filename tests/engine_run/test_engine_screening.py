"""Screening keeps the best, whatever fails beside them, and looks at nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_parts import POINTS, Engine, at, changed, fault, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernloom.plan.planned import Planned

SEEDED = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
TIMES = st.lists(
    st.sampled_from([500.0, 1000.0, 2000.0, 4000.0, 8000.0]), min_size=POINTS, max_size=POINTS
)


def set_times(engine: Engine, times_ns: list[float]) -> None:
    engine.world.times_ns = {
        key_of(plan): time for plan, time in zip(engine.plans, times_ns, strict=True)
    }


@given(times=TIMES, keep=st.integers(1, POINTS + 2), batch=st.integers(1, POINTS))
@SEEDED
def test_the_best_are_kept_and_of_equals_the_first(
    new_engine: Callable[[], Engine], times: list[float], keep: int, batch: int
) -> None:
    engine = new_engine()
    set_times(engine, times)
    found = engine.screen(keep, batch=batch)
    order = sorted(range(POINTS), key=lambda number: times[number])
    assert found.kept == {engine.plans[number].id for number in order[:keep]}
    assert [trial.id for trial in found.trials] == [plan.id for plan in engine.plans]
    assert [trial.metrics["median_ns"] for trial in found.trials] == times
    assert not engine.store.attempts, "a screening result is no trial"


@given(times=TIMES, bad=st.sets(st.integers(0, POINTS - 1)), keep=st.integers(1, 3))
@SEEDED
def test_what_fails_is_never_kept_and_costs_the_others_nothing(
    new_engine: Callable[[], Engine], times: list[float], bad: set[int], keep: int
) -> None:
    engine = new_engine()
    set_times(engine, times)
    kinds = ("crashed", "wrong", "build_failed", "timeout")
    expected = ["ok"] * POINTS
    for number in bad:
        expected[number] = kind = kinds[number % len(kinds)]
        key = key_of(engine.plans[number])
        if kind == "wrong":
            engine.world.wrong.add(key)
        elif kind == "build_failed":
            engine.world.uncompilable.add(key)
        else:
            engine.world.faults[key] = fault(kind)
    found = engine.screen(keep)
    assert [trial.status for trial in found.trials] == expected
    good = sorted(set(range(POINTS)) - bad, key=lambda number: times[number])
    assert found.kept == {engine.plans[number].id for number in good[:keep]}
    assert sum(found.statuses.values()) == len(bad)


def test_nothing_is_looked_at_twice(engine: Engine) -> None:
    engine.world.wrong.add(key_of(engine.plans[0]))
    first = engine.screen(2)
    engine.world.happened.clear()
    again = engine.screen(2)
    assert not engine.world.all("open")
    assert not engine.world.all("build")
    assert again.known == POINTS
    assert again.kept == first.kept
    assert [trial.status for trial in again.trials] == [trial.status for trial in first.trials]
    assert [trial.metrics for trial in again.trials] == [trial.metrics for trial in first.trials]


@pytest.mark.parametrize(("rerun", "looked_at"), [("none", 0), ("failed", 1), ("all", POINTS)])
def test_rerun_says_which_points_are_looked_at_again(
    engine: Engine, rerun: str, looked_at: int
) -> None:
    engine.world.wrong.add(key_of(engine.plans[0]))
    engine.screen(2)
    engine.world.happened.clear()
    found = engine.screen(2, rerun=rerun)
    assert len(engine.world.all("open")) == looked_at
    assert found.known == POINTS - looked_at


def test_more_points_cost_only_the_looks_that_are_new(engine: Engine) -> None:
    engine.screen(1, engine.plans[:4])
    engine.world.happened.clear()
    assert engine.screen(1).known == 4
    assert set(engine.world.all("launch")) == {key_of(plan) for plan in engine.plans[4:]}


def test_points_that_are_the_same_trial_are_looked_at_once(engine: Engine) -> None:
    plan = engine.plans[0]
    found = engine.screen(1, [at(plan, place=0), at(plan, place=1), engine.plans[1]])
    assert len(found.trials) == 2
    assert len(engine.world.all("open")) == 2


def test_what_failed_as_a_stored_trial_is_not_looked_at(engine: Engine) -> None:
    bad = engine.plans[0]
    engine.world.faults[key_of(bad)] = fault("crashed")
    engine.run([bad])
    engine.world.happened.clear()
    found = engine.screen(1, engine.plans[:2])
    assert found.known == 1
    assert not engine.world.launched(bad)
    assert found.trials[0].status == "crashed"


def test_a_look_is_short_whatever_policy_follows(engine: Engine) -> None:
    policy = replace(engine.plans[0].experiment.measure, min_rounds=5, max_rounds=30, samples=50)
    plans = [changed(plan, measure=policy) for plan in engine.plans[:3]]
    found = engine.screen(1, plans)
    # One launch to verify and one to measure.
    assert [engine.world.launched(plan) for plan in plans] == [2, 2, 2]
    assert all(trial.metrics["samples"] == 7 for trial in found.trials)


def test_another_policy_is_another_screening(engine: Engine) -> None:
    engine.screen(1)
    policy = replace(engine.plans[0].experiment.measure, cache="cold")
    engine.world.capabilities |= {"cold_cache"}
    assert engine.screen(1, [changed(plan, measure=policy) for plan in engine.plans]).known == 0


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_a_batch_that_does_not_compile_is_built_kernel_by_kernel(
    engine: Engine, batch: int
) -> None:
    bad = engine.plans[3]
    engine.world.uncompilable.add(key_of(bad))
    found = engine.screen(POINTS, batch=batch)
    assert [trial.status == "build_failed" for trial in found.trials] == [
        plan is bad for plan in engine.plans
    ]
    assert len(found.kept) == POINTS - 1


def test_an_engine_that_screens_the_same_points_is_waited_for(
    engine: Engine, new_engine: Callable[[], Engine]
) -> None:
    other = new_engine()
    other.screen(1)
    (name,) = [which for which in other.world.all("claim") if which.startswith("screening")]

    def let_go() -> None:
        engine.store.kept_screenings |= other.store.kept_screenings

    engine.store.claimed[name] = let_go
    found = engine.screen(1)
    assert found.known == POINTS
    assert not engine.world.all("open")
    assert engine.told.said == ["waiting: another Kernloom screens the same points"]


def test_each_look_is_told_of_those_of_earlier_runs_first(engine: Engine) -> None:
    known = engine.plans[2:4]
    engine.screen(1, known)
    engine.screen(1, engine.plans[:4])
    ids = [plan.id for plan in (*known, *engine.plans[:2])]
    assert [trial.id for trial in engine.ended] == ids


def test_the_line_about_a_screening_counts_what_was_seen(engine: Engine) -> None:
    set_times(engine, [1000.0 * number for number in range(1, POINTS + 1)])
    engine.world.wrong.add(key_of(engine.plans[7]))
    found = engine.screen(2)
    assert found.text.startswith(f"screened {POINTS} points in ")
    assert "best 1.00 µs, median 4.00 µs; 1 wrong; measured in full: 2" in found.text
    assert "8 screened before" in engine.screen(2).text


def kept(engine: Engine, plans: list[Planned]) -> list[str]:
    found = engine.screen(2, plans)
    return [plan.id for plan in plans if plan.id in found.kept]


def test_the_best_of_each_work_are_kept(engine: Engine) -> None:
    small, large = engine.plans[:3], []
    for plan in engine.plans[3:6]:
        data = {**plan.point.data, "workload": {**plan.point.data["workload"], "sizes": {"n": 16}}}
        large.append(replace(plan, point=replace(plan.point, data=data)))
    set_times(engine, [3000.0, 1000.0, 2000.0, 30.0, 20.0, 10.0, 1.0, 1.0])
    ids = [plan.id for plan in (*small[1:], *large[1:])]
    assert kept(engine, [*small, *large]) == ids
