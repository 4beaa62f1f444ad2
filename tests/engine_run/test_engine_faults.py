"""One fault costs one trial: compilers, devices, memory and stores that fail in the middle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from fake_parts import POINTS, Engine, changed, fault, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernloom.base.errors import ConfigError, DeviceError, UnavailableError
from kernloom.plan.planned import Planned, Refusal
from kernloom.run.execution import Execution, exit_code
from kernloom.run.trials import MEMORY_LEFT, OUT_OF_MEMORY_MESSAGE

KINDS = st.sampled_from(
    ["ok", "wrong", "crashed", "timeout", "out_of_bounds", "out_of_memory", "build_failed"]
)


def afflict(engine: Engine, plan: Planned, kind: str) -> None:
    """Let a plan end so."""
    key = key_of(plan)
    if kind == "wrong":
        engine.world.wrong.add(key)
    elif kind == "build_failed":
        engine.world.uncompilable.add(key)
    elif kind != "ok":
        engine.world.faults[key] = fault(kind)


def in_rounds(plans: Sequence[Planned], rounds: int = 3) -> list[Planned]:
    """The plans with a policy of several processes each."""
    policy = replace(plans[0].experiment.measure, min_rounds=rounds, max_rounds=rounds)
    return [changed(plan, measure=policy) for plan in plans]


@given(kinds=st.lists(KINDS, min_size=POINTS, max_size=POINTS), overlap=st.booleans())
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_every_trial_ends_as_it_would_alone(
    new_engine: Callable[[], Engine], several_cores: None, kinds: list[str], overlap: bool
) -> None:
    engine = new_engine()
    for plan, kind in zip(engine.plans, kinds, strict=True):
        afflict(engine, plan, kind)
    results = engine.run(overlap=overlap)
    assert [trial.status for trial in results.trials] == kinds
    assert [trial.verified for trial in results.trials] == [kind == "ok" for kind in kinds]
    assert all(trial.message for trial in results.trials if trial.status != "ok")
    assert len(engine.store.attempts) == POINTS
    assert results.build.failed == kinds.count("build_failed")
    assert results.build.built == POINTS - results.build.failed
    assert exit_code(results.trials) == int(set(kinds) != {"ok"})


def test_what_does_not_compile_says_what_the_compiler_said(engine: Engine) -> None:
    plan = engine.plans[0]
    afflict(engine, plan, "build_failed")
    (trial,) = engine.run([plan]).trials
    assert trial.stage == "library"
    assert "nobody can compile this" in trial.message
    assert not engine.world.launched(plan)


def test_a_failed_build_is_tried_again_by_the_next_run(engine: Engine) -> None:
    plan = engine.plans[0]
    afflict(engine, plan, "build_failed")
    engine.run([plan])
    engine.world.uncompilable.clear()
    (trial,) = engine.run([plan]).trials
    assert trial.status == "ok"
    assert engine.world.all("build") == [key_of(plan)] * 2


@pytest.mark.parametrize("launch", range(1, 5))
def test_a_kernel_that_crashes_at_any_launch_leaves_the_others_alone(
    engine: Engine, launch: int
) -> None:
    plans = in_rounds(engine.plans[:3])
    engine.world.faults[key_of(plans[1])] = fault("crashed", first=launch)
    results = engine.run(plans)
    assert [trial.status for trial in results.trials] == ["ok", "crashed", "ok"]
    assert results.trials[1].stage == ("correct" if launch == 1 else "timing")
    assert engine.world.launched(plans[1]) == launch


def test_a_device_that_dies_in_the_middle_is_unavailable_from_then_on(engine: Engine) -> None:
    def die(number: int) -> None:
        engine.world.unplugged = True
        raise DeviceError("the device does not answer", status="crashed")

    engine.world.faults[key_of(engine.plans[2])] = die
    results = engine.run()
    assert [trial.status for trial in results.trials] == (
        ["ok", "ok", "crashed"] + ["unavailable"] * (POINTS - 3)
    )
    assert exit_code(results.trials) == 1
    engine.world.unplugged = False
    engine.world.faults.clear()
    again = engine.run()
    assert [trial.reused for trial in again.trials] == [True] * 3 + [False] * (POINTS - 3)


def test_a_device_that_is_not_there_gives_exit_code_3(engine: Engine) -> None:
    engine.world.unplugged = True
    assert exit_code(engine.run().trials) == 3


def test_an_engine_out_of_memory_loses_one_trial(engine: Engine) -> None:
    def full(number: int) -> None:
        raise MemoryError

    plan = engine.plans[0]
    engine.world.faults[key_of(plan)] = full
    trials = engine.run(engine.plans[:2]).trials
    assert [trial.status for trial in trials] == ["out_of_memory", "ok"]
    assert trials[0].message == OUT_OF_MEMORY_MESSAGE
    assert trials[0].conditions[MEMORY_LEFT] > 0
    engine.world.faults.clear()
    assert engine.run(engine.plans[:1]).trials[0].status == "ok"


def test_tensors_beyond_the_limit_are_not_even_filled(engine: Engine) -> None:
    plan = changed(engine.plans[0], memory_limit="16")
    (trial,) = engine.run([plan]).trials
    assert trial.status == "out_of_memory"
    assert "memory_limit" in trial.message
    assert not engine.world.launched(plan)


@pytest.mark.parametrize("reachable", range(4))
def test_a_store_that_becomes_unreachable_ends_the_run_with_what_it_has(
    engine: Engine, reachable: int
) -> None:
    plans = engine.plans[:4]
    engine.store.reachable_for = reachable
    if not reachable:
        # There is nothing to show, so the error is all there is to say.
        with pytest.raises(UnavailableError, match="cannot be reached"):
            engine.run(plans)
    else:
        results = engine.run(plans)
        assert str(results.failure) == "the store cannot be reached"
        assert [trial.id for trial in results.trials] == [plan.id for plan in plans[:reachable]]
        assert exit_code(results.trials, failed=results.failure is not None) == 1
    # It does not go on measuring what nobody keeps.
    assert len(engine.world.all("open")) == reachable + 1
    engine.store.reachable_for = None
    again = engine.run(plans)
    assert [trial.reused for trial in again.trials] == [n < reachable for n in range(4)]


def test_a_builder_that_cannot_build_at_all_is_an_error_and_no_trial(engine: Engine) -> None:
    assembly = engine.assembly

    def full(*_: object, **__: object) -> None:
        raise UnavailableError("the disk is full")

    assembly.fake_builder.build = full  # type: ignore[method-assign, assignment]
    fleet = engine.local(assembly)
    with pytest.raises(UnavailableError, match="disk is full"):
        Execution(assembly, engine.store, engine.told, fleet).execute(engine.plans)
    assert not engine.store.attempts


def test_a_refused_point_is_a_trial_among_the_others_and_starts_nothing(engine: Engine) -> None:
    error = ConfigError("by must not be 2", key="select")
    refused = replace(engine.plans[1], refusal=Refusal("refused", "plan", error))
    results = engine.run([engine.plans[0], refused, engine.plans[2]])
    assert [trial.status for trial in results.trials] == ["ok", "refused", "ok"]
    assert "by must not be 2" in results.trials[1].message
    assert not engine.world.launched(refused)


def test_rounds_take_turns_and_no_trial_takes_two_at_once(engine: Engine) -> None:
    plans = in_rounds(engine.plans[:3], rounds=4)
    engine.run(plans)
    launches = engine.world.all("launch")
    rounds = [launches[start : start + 3] for start in range(0, len(launches), 3)]
    # The first one of each is verified, and measured in the first round.
    assert all(len(set(turn)) == 3 for turn in rounds[2:])
    assert all(launches.count(key_of(plan)) == 5 for plan in plans)


@pytest.mark.parametrize("together", [1, 2, 3])
def test_no_more_share_their_rounds_than_the_policy_says(engine: Engine, together: int) -> None:
    policy = replace(
        engine.plans[0].experiment.measure, min_rounds=2, max_rounds=2, together=together
    )
    plans = [changed(plan, measure=policy) for plan in engine.plans[:6]]
    engine.run(plans)
    stored = engine.world.all("stored")
    for start in range(0, 6, together):
        block = {plan.id for plan in plans[start : start + together]}
        assert set(stored[start : start + together]) == block
