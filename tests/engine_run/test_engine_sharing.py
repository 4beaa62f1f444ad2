"""Several engines with one store: each trial is executed by one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_parts import Engine, FakeClaims, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.sharing import Everything, Sharing


def others_trial(engine: Engine, plan: Planned, **how: object) -> Trial:
    """The trial of a plan as another engine executes it."""
    twin = Engine(engine._folder, engine.plans)
    twin.run([plan])
    engine.assembly  # noqa: B018 (its device is found again)
    (trial,) = twin.store.attempts[plan.id]
    return replace(trial, **how)


def leave_to_another(engine: Engine, plan: Planned, trial: Trial | None) -> None:
    """Another engine has claimed the plan; it stores the trial, or ends without one."""

    def let_go() -> None:
        if trial:
            engine.store.add_by_another(trial)

    engine.store.claimed[plan.id] = let_go


def test_a_trial_that_another_engine_executes_is_left_to_it(engine: Engine) -> None:
    plan = engine.plans[1]
    leave_to_another(engine, plan, others_trial(engine, plan))
    results = engine.run(engine.plans[:3])
    assert [trial.status for trial in results.trials] == ["ok"] * 3
    assert [trial.reused for trial in results.trials] == [False, True, False]
    assert not engine.world.launched(plan)
    assert engine.store.reuses == [plan.id]
    assert engine.told.said == ["waiting: another Kernloom carries out 1 trial"]


def test_it_is_executed_after_all_that_are_free(engine: Engine) -> None:
    plan = engine.plans[0]
    leave_to_another(engine, plan, None)
    engine.run(engine.plans[:3])
    assert engine.world.all("stored") == [p.id for p in (*engine.plans[1:3], plan)]


def test_trials_keep_the_order_of_their_points_whoever_executes_them(engine: Engine) -> None:
    for number in (0, 2):
        plan = engine.plans[number]
        leave_to_another(engine, plan, others_trial(engine, plan))
    results = engine.run(engine.plans[:4])
    assert [trial.id for trial in results.trials] == [plan.id for plan in engine.plans[:4]]


def test_an_engine_that_ended_without_storing_leaves_its_trials_to_us(engine: Engine) -> None:
    plan = engine.plans[1]
    leave_to_another(engine, plan, None)
    results = engine.run(engine.plans[:3])
    assert not any(trial.reused for trial in results.trials)
    assert len(engine.store.attempts[plan.id]) == 1


@pytest.mark.parametrize(
    ("ended", "taken"),
    [
        ({"status": "ok"}, True),
        ({"status": "wrong", "verified": False}, True),
        ({"status": "refused", "verified": False}, True),
        ({"status": "interrupted", "verified": False}, False),
        ({"status": "out_of_memory", "verified": False}, False),
        ({"status": "crashed", "verified": False, "message": "SIGSEGV"}, True),
        ({"status": "crashed", "verified": False, "message": "SIGKILL"}, False),
        ({"status": "timeout", "verified": False, "config": {"timeout": 1.0}}, False),
    ],
)
def test_another_engines_trial_is_taken_unless_it_depends_on_its_limits(
    engine: Engine, ended: dict[str, object], taken: bool
) -> None:
    plan = engine.plans[0]
    leave_to_another(engine, plan, others_trial(engine, plan, **ended))
    (trial,) = engine.run([plan]).trials
    assert trial.reused is taken
    assert bool(engine.world.launched(plan)) is not taken
    assert trial.status == (ended["status"] if taken else "ok")


def test_an_older_attempt_does_not_pass_for_what_another_engine_does_now(engine: Engine) -> None:
    plan = engine.plans[0]
    engine.store.add_by_another(others_trial(engine, plan, status="crashed", verified=False))
    # The other engine stores something, but not this trial.
    leave_to_another(engine, plan, others_trial(engine, engine.plans[1]))
    (trial,) = engine.run([plan], rerun="failed").trials
    assert trial.status == "ok"
    assert not trial.reused


def test_rerun_all_asks_nobody(engine: Engine) -> None:
    for plan in engine.plans:
        leave_to_another(engine, plan, None)
    results = engine.run(rerun="all")
    assert not any(trial.reused for trial in results.trials)
    assert not engine.world.all("wait")
    assert not engine.world.all("claim")


def test_no_claim_outlives_the_trial(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FakeClaims] = []

    def claims() -> FakeClaims:
        made.append(FakeClaims(engine.store))
        return made[-1]

    monkeypatch.setattr(engine.store, "claims", claims)
    held: list[int] = []
    engine.world.faults = {
        key_of(p): lambda _: held.append(len(made[0].held)) for p in engine.plans
    }
    engine.run()
    assert held
    assert max(held) == 1
    assert not made[0].held


@given(
    whose=st.lists(st.sampled_from(["ours", "stored", "gone"]), min_size=5, max_size=5),
    overlap=st.booleans(),
)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_whoever_has_claimed_what_every_trial_is_executed_once(
    new_engine: Callable[[], Engine], several_cores: None, whose: list[str], overlap: bool
) -> None:
    engine = new_engine()
    plans = engine.plans[:5]
    for plan, who in zip(plans, whose, strict=True):
        if who != "ours":
            leave_to_another(engine, plan, others_trial(engine, plan) if who == "stored" else None)
    results = engine.run(plans, overlap=overlap)
    assert [trial.id for trial in results.trials] == [plan.id for plan in plans]
    assert [trial.reused for trial in results.trials] == [who == "stored" for who in whose]
    assert all(len(engine.store.attempts[plan.id]) == 1 for plan in plans)


def test_without_others_everything_is_ours(engine: Engine) -> None:
    share = Everything()
    assert share.claim(engine.plans) == (engine.plans, [])
    share.release(engine.plans[0])
    share.wait(engine.plans)


def test_what_was_waited_for_is_not_claimed_again(engine: Engine) -> None:
    plan = engine.plans[0]
    leave_to_another(engine, plan, None)
    claims = FakeClaims(engine.store)
    taken: list[Trial] = []
    share = Sharing(claims, lambda _: {}, lambda _, trial: taken.append(trial), lambda _: None)
    assert share.claim([plan]) == ([], [plan])
    share.wait([plan])
    assert share.claim([plan]) == ([plan], [])
    assert claims.held == {plan.id}
    share.release(plan)
    share.release(plan)
    assert not claims.held
    assert not taken
    leave_to_another(engine, plan, None)
    assert share.claim([plan]) == ([], [plan]), "what was released is another's to claim"
