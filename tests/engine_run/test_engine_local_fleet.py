"""The local fleet: in which order this machine builds and measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_parts import POINTS, Engine, changed, key_of

from kernloom.fleet import local


def test_without_overlap_all_is_built_before_anything_is_measured(engine: Engine) -> None:
    engine.run()
    kinds = [what for what, _ in engine.world.happened if what in ("build", "launch")]
    assert kinds == ["build"] * POINTS + ["launch"] * 2 * POINTS


def test_overlapping_nothing_is_measured_before_it_is_built(
    engine: Engine, several_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MIN_TRIALS_BUILT", 2)
    results = engine.run(overlap=True)
    assert not engine.told.said
    assert [trial.status for trial in results.trials] == ["ok"] * POINTS
    happened = engine.world.happened
    for plan in engine.plans:
        built, launched = ("build", key_of(plan)), ("launch", key_of(plan))
        assert happened.index(built) < happened.index(launched)
    # The first ones are measured while later ones are still to be built.
    assert happened.index(("launch", key_of(engine.plans[0]))) < happened.index(
        ("build", key_of(engine.plans[-1]))
    )
    assert results.build.built == POINTS


def test_overlapping_what_is_built_already_is_measured_first(
    engine: Engine, several_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MIN_TRIALS_BUILT", 1)
    last = engine.plans[-1]
    engine.world.there.add(key_of(last))
    engine.run(overlap=True)
    assert engine.world.all("launch")[0] == key_of(last)


@pytest.mark.parametrize(
    ("change", "why"),
    [({"pin": False}, "measure.pin"), ({"clock": "wall"}, "the wall clock counts")],
)
def test_what_compilers_would_disturb_is_measured_after_them(
    engine: Engine, several_cores: None, change: dict[str, object], why: str
) -> None:
    policy = replace(engine.plans[0].experiment.measure, **change)
    results = engine.run([changed(plan, measure=policy) for plan in engine.plans], overlap=True)
    assert why in engine.told.said[0]
    assert len(results.trials) == POINTS


def test_one_core_is_not_shared_with_compilers(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "smt_siblings", lambda core: local.os.sched_getaffinity(0))
    engine.run(engine.plans[:2], overlap=True)
    assert "there is no other core" in engine.told.said[0]


def test_policies_are_measured_one_after_the_other(engine: Engine) -> None:
    policy = engine.plans[0].experiment.measure
    rounds = replace(policy, min_rounds=2, max_rounds=2)
    mixed = [
        changed(plan, measure=policy if number % 2 else rounds)
        for number, plan in enumerate(engine.plans[:6])
    ]
    results = engine.run(mixed)
    assert [trial.id for trial in results.trials] == [plan.id for plan in mixed]
    stored = engine.world.all("stored")
    assert set(stored[:3]) == {plan.id for plan in mixed[::2]}
    assert stored[3:] == [plan.id for plan in mixed[1::2]]


def test_an_interrupt_while_overlapping_keeps_what_is_finished(
    new_engine: Callable[[], Engine], several_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MIN_TRIALS_BUILT", 1)
    whole = new_engine()
    whole.run(whole.plans[:3], overlap=True)
    for moment in range(1, len(whole.world.happened) + 1):
        engine = new_engine()
        engine.world.interrupt_at = moment
        results = engine.run(engine.plans[:3], overlap=True)
        assert results.interrupted
        assert {trial.id for trial in results.trials} <= engine.store.attempts.keys()
        again = engine.run(engine.plans[:3], overlap=True)
        assert [trial.status for trial in again.trials] == ["ok"] * 3


def test_a_screening_is_measured_while_the_rest_is_built(
    engine: Engine, several_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MIN_TRIALS_BUILT", 2)
    screening = engine.screen(2, batch=2, overlap="auto")
    assert len(screening.trials) == POINTS
    happened = [what for what, _ in engine.world.happened]
    assert happened.index("launch") < len(happened) - 1 - happened[::-1].index("build")
    # For the best, which are built next.
    assert happened.count("prepare") == 1


def test_nothing_to_do_starts_nothing(engine: Engine) -> None:
    results = engine.run([])
    assert not results.trials
    assert not engine.world.happened
