"""What is stored is not executed again; trials come in the order of their points, each once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from fake_parts import POINTS, Engine, at, changed, fault, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernloom.config.sweeps import POINT
from kernloom.run.execution import as_good, exit_code, lasting, reusable
from kernloom.run.trials import MEMORY_LEFT, OUT_OF_MEMORY_MESSAGE
from kernloom.store.store import open_store

STATUSES = ("ok", "wrong", "crashed", "timeout", "out_of_bounds", "out_of_memory", "unconverged")
FRESH = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
NUMBERS = st.lists(st.integers(0, POINTS - 1), min_size=1, max_size=12)
"""Which plans the points of a sweep are; some of them the same."""


def test_every_point_is_built_launched_and_stored_once(engine: Engine) -> None:
    results = engine.run()
    assert [trial.status for trial in results.trials] == ["ok"] * POINTS
    assert sorted(engine.world.all("build")) == sorted(map(key_of, engine.plans))
    assert engine.world.all("stored") == [plan.id for plan in engine.plans]
    assert (results.build.built, results.build.cached, results.build.failed) == (POINTS, 0, 0)
    assert exit_code(results.trials) == 0


def test_what_is_stored_is_neither_built_nor_executed_again(engine: Engine) -> None:
    first = engine.run()
    engine.world.happened.clear()
    again = engine.run()
    assert not engine.world.happened
    assert [trial.id for trial in again.trials] == [trial.id for trial in first.trials]
    assert all(trial.reused for trial in again.trials)
    assert engine.store.reuses == [plan.id for plan in engine.plans]
    assert (again.build.built, again.build.cached, again.build.scons) == (0, POINTS, 0)


def test_a_stored_trial_is_reused_though_its_artifacts_are_gone(engine: Engine) -> None:
    engine.run()
    engine.world.there.clear()
    again = engine.run()
    assert (again.build.built, again.build.cached) == (0, 0)
    assert not any(item["cached"] for trial in again.trials for item in trial.artifacts)


def test_without_a_store_everything_is_executed_every_time(engine: Engine) -> None:
    for _ in range(2):
        results = engine.run(stored=False)
        assert not any(trial.reused for trial in results.trials)
        assert all(trial.samples for trial in results.trials)
    assert not engine.store.attempts


def test_with_a_store_the_samples_are_left_to_it(engine: Engine) -> None:
    results = engine.run()
    assert not any(trial.samples for trial in results.trials)
    assert all(found[-1].samples for found in engine.store.attempts.values())


@pytest.mark.parametrize("rerun", ["none", "failed", "all"])
def test_rerun_says_which_stored_trials_are_executed_again(engine: Engine, rerun: str) -> None:
    good, crashed, wrong = engine.plans[:3]
    engine.world.faults[key_of(crashed)] = fault("crashed")
    engine.world.wrong.add(key_of(wrong))
    engine.run([good, crashed, wrong])
    engine.world.happened.clear()
    again = engine.run([good, crashed, wrong], rerun=rerun)
    executed = {"none": [], "failed": [crashed, wrong], "all": [good, crashed, wrong]}[rerun]
    assert engine.world.all("stored") == [plan.id for plan in executed]
    assert [trial.status for trial in again.trials] == ["ok", "crashed", "wrong"]
    assert not engine.world.all("build")


def test_what_failed_before_and_is_good_now_is_stored_as_the_next_attempt(engine: Engine) -> None:
    plan = engine.plans[0]
    engine.world.faults[key_of(plan)] = fault("crashed")
    engine.run([plan])
    engine.world.faults.clear()
    (trial,) = engine.run([plan], rerun="failed").trials
    assert trial.status == "ok"
    assert [attempt.status for attempt in engine.store.attempts[plan.id]] == ["crashed", "ok"]


@given(numbers=NUMBERS)
@FRESH
def test_trials_come_in_the_order_of_the_points_and_the_same_runs_once(
    new_engine: Callable[[], Engine], numbers: list[int]
) -> None:
    engine = new_engine()
    plans = [at(engine.plans[number], place=place) for place, number in enumerate(numbers)]
    results = engine.run(plans)
    assert [trial.id for trial in results.trials] == [plan.id for plan in plans]
    assert [trial.point for trial in results.trials] == [plan.point.swept for plan in plans]
    first = [numbers.index(number) == place for place, number in enumerate(numbers)]
    assert [not trial.same for trial in results.trials] == first
    assert len(engine.world.all("stored")) == len(set(numbers)) == len(engine.world.all("build"))
    told = [trial.point["place"] for trial in engine.ended]
    assert sorted(told) == list(range(len(numbers)))


@given(before=NUMBERS, now=NUMBERS, failing=st.sets(st.integers(0, POINTS - 1)))
@FRESH
def test_a_run_does_just_what_earlier_ones_have_not_done(
    new_engine: Callable[[], Engine], before: list[int], now: list[int], failing: set[int]
) -> None:
    engine = new_engine()
    for number in failing:
        engine.world.faults[key_of(engine.plans[number])] = fault("timeout")
    engine.run([engine.plans[number] for number in before])
    engine.world.happened.clear()
    # What ran out of time may do better with more of it, and only then.
    patient = [changed(engine.plans[number], timeout=1000.0) for number in now]
    results = engine.run(patient)
    left = {engine.plans[number].id for number in now if number not in {*before} - failing}
    assert set(engine.world.all("stored")) == left
    assert [trial.id for trial in results.trials] == [plan.id for plan in patient]
    assert [t.status == "timeout" for t in results.trials] == [number in failing for number in now]


def test_the_store_learns_the_name_of_a_point_though_one_without_it_comes_first(
    engine: Engine,
) -> None:
    plan = engine.plans[0]
    named = [at(plan, **{POINT: name}) for name in ("fast", "again")]
    engine.run([at(plan, place=1), *named])
    assert engine.store.attempts[plan.id][-1].point == {POINT: "fast"}


@pytest.mark.parametrize(
    ("status", "rerun", "killed"), list(product(STATUSES, ("none", "failed"), (False, True)))
)
def test_what_depends_on_the_day_is_not_reused(
    engine: Engine, make_trial: Callable[..., object], status: str, rerun: str, killed: bool
) -> None:
    plan = changed(engine.plans[0], rerun=rerun)
    message = "ended by SIGKILL" if killed else ""
    trial = make_trial(status=status, verified=status == "ok", message=message)
    by_kill = killed and status == "crashed"
    lasts = status not in ("timeout", "out_of_memory") and not by_kill
    assert lasting(trial, plan) is lasts
    assert reusable(trial, plan) is (lasts and (rerun == "none" or status == "ok"))
    depends = status in ("timeout", "out_of_memory") or by_kill
    assert as_good(trial, plan) is not depends


@pytest.mark.parametrize(("had", "now"), list(product((1.0, 60.0), (0.5, 1.0, 60.0, 61.0))))
def test_what_ran_out_of_time_is_repeated_only_with_more_of_it(
    engine: Engine, make_trial: Callable[..., object], had: float, now: float
) -> None:
    trial = make_trial(status="timeout", verified=False, config={"timeout": had})
    assert lasting(trial, changed(engine.plans[0], timeout=now)) is (had >= now)


@pytest.mark.parametrize(
    ("had", "now", "left", "message"),
    list(
        product(
            (None, "1MiB", 2**20),
            (None, "512KiB", "1MiB", "2MiB"),
            (2**19, 2**21),
            ("", OUT_OF_MEMORY_MESSAGE),
        )
    ),
)
def test_what_ran_out_of_memory_is_repeated_only_with_more_of_it(
    engine: Engine,
    make_trial: Callable[..., object],
    had: str | int | None,
    now: str | None,
    left: int,
    message: str,
) -> None:
    trial = make_trial(
        status="out_of_memory",
        verified=False,
        message=message,
        config={"memory_limit": had},
        conditions={MEMORY_LEFT: left},
    )
    limited = had is not None and left >= 2**20 and now in ("512KiB", "1MiB")
    plan = changed(engine.plans[0], memory_limit=now)
    assert lasting(trial, plan) is (limited and message != OUT_OF_MEMORY_MESSAGE)


@pytest.mark.parametrize(
    ("statuses", "interrupted", "failed", "code"),
    [
        (["ok", "ok"], False, False, 0),
        (["ok", "unconverged"], False, False, 0),
        (["ok", "wrong"], False, False, 1),
        (["ok", "unavailable"], False, False, 3),
        (["wrong", "unavailable"], False, False, 1),
        (["ok"], False, True, 1),
        (["ok"], True, False, 130),
        (["wrong"], True, True, 130),
        ([], False, False, 0),
    ],
)
def test_the_exit_code_says_how_a_run_ended(
    make_trial: Callable[..., object],
    statuses: list[str],
    interrupted: bool,
    failed: bool,
    code: int,
) -> None:
    trials = [make_trial(status=s, verified=s in ("ok", "unconverged")) for s in statuses]
    assert exit_code(trials, interrupted=interrupted, failed=failed) == code


def test_a_real_store_gives_the_same_answers_as_the_fake_one(engine: Engine, tmp_path) -> None:
    failing = engine.plans[1]
    engine.world.faults[key_of(failing)] = fault("crashed")
    with open_store(tmp_path / "store.db") as store:
        engine.store = store
        first = engine.run(engine.plans[:3])
        engine.world.happened.clear()
        again = engine.run(engine.plans[:4])
        assert [trial.status for trial in first.trials] == ["ok", "crashed", "ok"]
        assert [trial.reused for trial in again.trials] == [True, True, True, False]
        engine.run(engine.plans[:3], rerun="failed")
        found = {trial.id: trial.attempt for trial in store.query()}
        assert found == {plan.id: 2 if plan is failing else 1 for plan in engine.plans[:4]}
