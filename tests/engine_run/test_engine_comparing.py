"""Comparing: contenders in the same rounds; one that fails leaves the others to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_parts import Engine, changed, fault, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.measure.comparison import Compared
from kernloom.plan.planned import Planned
from kernloom.run.comparing import Contender, compare, unchanged

NAMES = ("one", "two", "three", "four")


@pytest.fixture
def engine(new_engine: Callable[[], Engine], plans_to_compare: list[Planned]) -> Engine:
    engine = new_engine()
    engine.plans = plans_to_compare
    return engine


def contenders(engine: Engine, number: int = 3) -> list[Contender]:
    """Different kernels that are compared under a policy of a few rounds."""
    policy = replace(engine.plans[0].experiment.measure, min_rounds=6, max_rounds=8)
    plans = [changed(plan, measure=policy) for plan in engine.plans[:number]]
    return [Contender(name, plan) for name, plan in zip(NAMES, plans, strict=False)]


def compared(
    engine: Engine,
    among: list[Contender],
    groups: list[list[str]] | None = None,
    *,
    control: bool = False,
) -> Compared:
    wanted = groups or [[contender.name for contender in among]]
    return compare(engine.assembly, among, wanted, engine.told, control=control)


def set_time(engine: Engine, contender: Contender, time_ns: float) -> None:
    assert contender.plan
    engine.world.times_ns[key_of(contender.plan)] = time_ns


@given(times=st.tuples(*[st.sampled_from([500.0, 1000.0, 1001.0, 2000.0])] * 3))
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_the_verdict_is_that_of_the_times(engine: Engine, times: tuple[float, ...]) -> None:
    among = contenders(engine)
    for contender, time in zip(among, times, strict=True):
        set_time(engine, contender, time)
    found = compared(engine, among)
    assert [(item.a, item.b) for item in found.comparisons] == [("one", "two"), ("one", "three")]
    for item, time in zip(found.comparisons, times[1:], strict=True):
        assert item.speedup == pytest.approx(times[0] / time)
        close = abs(times[0] / time - 1) < 0.01
        assert item.verdict == (
            "equivalent" if close else "faster" if item.speedup > 1 else "slower"
        )
    assert [entry.metrics["median_ns"] for entry in found.entries] == list(times)


def test_all_of_them_take_turns_in_every_round(engine: Engine) -> None:
    among = contenders(engine)
    compared(engine, among)
    launches = engine.world.all("launch")
    verified, rounds = launches[:3], launches[3:]
    keys = {key_of(contender.plan) for contender in among if contender.plan}
    assert set(verified) == keys
    turns = [rounds[start : start + 3] for start in range(0, len(rounds), 3)]
    assert len(turns) >= 6
    assert all(set(turn) == keys for turn in turns)


@pytest.mark.parametrize("launch", [1, 2, 5])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_that_fails_leaves_the_others_to_it(engine: Engine, number: int, launch: int) -> None:
    among = contenders(engine)
    bad = among[number]
    assert bad.plan
    engine.world.faults[key_of(bad.plan)] = fault("crashed", first=launch)
    found = compared(engine, among)
    assert [entry.status == "crashed" for entry in found.entries] == [
        contender is bad for contender in among
    ]
    pairs = {(item.a, item.b) for item in found.comparisons}
    if number:
        assert pairs == {("one", name) for name in ("two", "three") if name != bad.name}
    elif launch == 1:
        # Whoever is not even verified is replaced by the next as the one to compare with.
        assert pairs == {("two", "three")}
        assert "compared with 'two', for the first one failed" in found.notes
    else:
        assert not pairs


def test_one_that_does_not_compile_leaves_the_others_to_it(engine: Engine) -> None:
    among = contenders(engine)
    assert among[2].plan
    engine.world.uncompilable.add(key_of(among[2].plan))
    found = compared(engine, among)
    assert [entry.status for entry in found.entries] == ["ok", "ok", "build_failed"]
    assert [(item.a, item.b) for item in found.comparisons] == [("one", "two")]


@pytest.mark.parametrize(
    ("problem", "status"),
    [(ConfigError("no such key"), "refused"), (UnavailableError("no compiler"), "unavailable")],
)
def test_one_without_a_plan_says_why(engine: Engine, problem: Exception, status: str) -> None:
    among = [*contenders(engine, 2), Contender("three", problem=problem)]  # type: ignore[arg-type]
    found = compared(engine, among)
    assert found.entries[2].status == status
    assert found.entries[2].message == str(problem)
    assert len(found.comparisons) == 1


def test_fewer_than_two_that_are_fit_are_not_raced(engine: Engine) -> None:
    among = contenders(engine, 2)
    assert among[0].plan
    engine.world.wrong.add(key_of(among[0].plan))
    found = compared(engine, among)
    assert [entry.status for entry in found.entries] == ["wrong", "ok"]
    assert not found.comparisons
    assert len(engine.world.all("launch")) == 2


def test_groups_are_raced_by_themselves(engine: Engine) -> None:
    among = contenders(engine, 4)
    found = compared(engine, among, [["one", "two"], ["three", "four"]])
    pairs = [(item.a, item.b) for item in found.comparisons]
    assert pairs == [("one", "two"), ("three", "four")]


def test_the_control_is_the_first_against_itself_and_no_comparison(engine: Engine) -> None:
    among = contenders(engine, 2)
    found = compared(engine, among, control=True)
    assert found.control is not None
    assert found.control.verdict == "equivalent"
    assert [(item.a, item.b) for item in found.comparisons] == [("one", "two")]


def test_an_unsteady_control_is_a_warning(engine: Engine) -> None:
    among = contenders(engine, 2)
    assert among[0].plan
    key = key_of(among[0].plan)

    def unsteady(number: int) -> None:
        # The contender and its control take turns: every second launch is slow.
        opened = engine.world.all("launch")[2:].count(key)
        engine.world.times_ns[key] = 1000.0 if opened % 2 else 3000.0

    engine.world.faults[key] = unsteady
    found = compared(engine, among, control=True)
    assert found.control is not None
    assert (found.control.verdict in ("faster", "slower")) is any(
        "do not trust the verdicts" in note for note in found.notes
    )


def test_counts_are_exact_and_taken_once(engine: Engine) -> None:
    engine.world.capabilities |= {"instructions"}
    among = contenders(engine, 2)
    set_time(engine, among[0], 200.0)
    set_time(engine, among[1], 100.0)
    found = compared(engine, among, control=True)
    assert [entry.metrics["instructions"] for entry in found.entries] == [200, 100]
    assert found.comparisons[0].speedup == 2
    assert "counts are exact: there is nothing to control" in found.notes


def test_the_same_artifacts_are_said_to_be_the_same(engine: Engine) -> None:
    one, two = contenders(engine, 2)
    found = compared(engine, [one, replace(two, plan=one.plan)])
    assert "all of them run the same artifacts" in found.notes
    assert unchanged(one, replace(two, plan=one.plan))
    assert not unchanged(one, two)


def test_injected_faults_are_said(engine: Engine) -> None:
    engine.world.injected = "slow=noc:4"
    found = compared(engine, contenders(engine, 2))
    assert "some of these have injected faults: slow=noc:4" in found.notes


def test_what_is_brought_along_is_not_built(engine: Engine, tmp_path: Path) -> None:
    one, two = contenders(engine, 2)
    assert two.plan
    stored = replace(two, stored={key_of(two.plan): tmp_path / key_of(two.plan)})
    found = compared(engine, [one, stored])
    assert len(found.comparisons) == 1
    assert engine.world.all("build") == [key_of(one.plan)] if one.plan else False
    assert not unchanged(stored, two)


def test_an_interrupt_is_passed_on(engine: Engine) -> None:
    among = contenders(engine, 2)
    engine.world.interrupt_at = 9
    with pytest.raises(KeyboardInterrupt):
        compared(engine, among)
