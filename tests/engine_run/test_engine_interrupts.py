"""Ctrl-C at every moment of a run: what is finished is kept, and the next run does the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_parts import Engine, key_of

from kernloom.run.execution import exit_code

MOMENTS = 4 * 5
"""No fewer things happen in a run of four trials: each is built, opened, launched and stored."""


def everything(engine: Engine, **how: bool) -> list[tuple[str, str]]:
    """All that happens in a run of four trials that nobody interrupts."""
    engine.run(engine.plans[:4], **how)
    return engine.world.happened


@pytest.mark.parametrize("overlap", [False, True])
def test_at_every_moment_what_is_finished_is_kept(
    new_engine: Callable[[], Engine], several_cores: None, overlap: bool
) -> None:
    total = len(everything(new_engine(), overlap=overlap))
    assert total >= MOMENTS
    for moment in range(1, total + 1):
        engine = new_engine()
        plans = engine.plans[:4]
        engine.world.interrupt_at = moment
        results = engine.run(plans, overlap=overlap)
        assert results.interrupted
        assert exit_code(results.trials, interrupted=results.interrupted) == 130
        kept = [trial.id for trial in results.trials]
        stored = [plan.id for plan in plans if plan.id in engine.store.attempts]
        # One may be stored and not yet told of; none is told of and not stored.
        assert kept == [id for id in stored if id in kept]
        assert len(stored) - len(kept) <= 1
        assert all(trial.status == "ok" for trial in results.trials)

        before = list(engine.world.happened)
        again = engine.run(plans, overlap=overlap)
        assert [trial.id for trial in again.trials] == [plan.id for plan in plans]
        assert [trial.reused for trial in again.trials] == [plan.id in stored for plan in plans]
        new = engine.world.happened[len(before) :]
        built = [which for what, which in before if what == "build"]
        assert not {which for what, which in new if what == "build"} & set(built)
        assert not again.interrupted


def test_a_second_interrupt_loses_no_more_than_the_first(new_engine: Callable[[], Engine]) -> None:
    total = len(everything(new_engine()))
    for moment in range(1, total + 1, 3):
        engine = new_engine()
        plans = engine.plans[:4]
        for _ in range(2):
            engine.world.happened.clear()
            engine.world.interrupt_at = moment
            engine.run(plans)
        engine.world.interrupt_at = 0
        assert [trial.status for trial in engine.run(plans).trials] == ["ok"] * 4
        assert all(len(found) == 1 for found in engine.store.attempts.values())


def test_an_interrupt_between_rounds_keeps_the_trials_that_have_ended(
    new_engine: Callable[[], Engine],
) -> None:
    engine = new_engine()
    early, late = engine.plans[:2]

    def stop(number: int) -> None:
        if early.id in engine.store.attempts:
            raise KeyboardInterrupt

    engine.world.faults[key_of(late)] = stop
    results = engine.run([early, late])
    assert [trial.id for trial in results.trials] == [early.id]
    assert results.interrupted
    assert late.id not in engine.store.attempts


def test_at_every_moment_of_a_screening_what_was_seen_is_kept(
    new_engine: Callable[[], Engine],
) -> None:
    engine = new_engine()
    engine.screen(1, engine.plans[:4])
    total = len(engine.world.happened)
    for moment in range(2, total + 1):
        engine = new_engine()
        engine.world.interrupt_at = moment
        found = engine.screen(1, engine.plans[:4])
        assert found.interrupted
        assert not found.kept
        again = engine.screen(1, engine.plans[:4])
        assert again.known == len(found.trials)
        assert len(again.kept) == 1
        assert not again.interrupted
