"""SCons is started while a sweep is planned, if the sweep will have something to build."""

from __future__ import annotations

from dataclasses import replace

from fake_parts import Engine, changed

from kernloom.run.early import EarlyStart


def test_it_starts_once_if_the_first_point_is_not_built(engine: Engine) -> None:
    early = EarlyStart(engine.assembly)
    for plan in engine.plans:
        early(plan)
    assert len(engine.world.all("prepare")) == 1


def test_nothing_starts_if_the_first_point_is_built(engine: Engine) -> None:
    assembly = engine.assembly
    for artifact in engine.plans[0].artifacts:
        path = artifact.path(assembly.places.build)
        path.parent.mkdir(parents=True)
        path.touch()
    early = EarlyStart(assembly)
    for plan in engine.plans:
        early(plan)
    assert not engine.world.all("prepare")


def test_before_a_screening_batches_count(engine: Engine) -> None:
    assembly = engine.assembly
    settings = replace(engine.plans[0].experiment.screen, keep=1)
    plan = changed(engine.plans[0], screen=settings)
    batches = assembly.places.build / "batches"
    EarlyStart(assembly)(plan)
    assert len(engine.world.all("prepare")) == 1
    (batches / "some").mkdir(parents=True)
    EarlyStart(assembly)(plan)
    assert len(engine.world.all("prepare")) == 1
