"""Cases of scenes, checked and chosen."""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.base.errors import UsageError, nearest
from kernloom.run.assembly import Assembly
from kernloom.scene.choosing import Choice, Pick, picks_of
from kernloom.scene.overrides import check_options, check_scene
from kernloom.scene.reading import SceneSpec


def chosen_picks(
    scenes: Sequence[SceneSpec],
    choice: Choice,
    assembly: Assembly,
    workloads: Sequence[str] = (),
) -> list[Pick]:
    """The cases that a choice includes, of all or some workloads. Workloads, targets and runtimes
    of every scene must exist; its other keys are checked if one of its cases is chosen."""
    check_choice(choice, assembly)
    for scene in scenes:
        check_options(scene, assembly.composer)
    found: list[Pick] = []
    for scene in scenes:
        if workloads and scene.workload not in workloads:
            continue
        picks = picks_of(scene, assembly.composer, choice.runtimes)
        included = [pick for pick in picks if choice.includes(pick)]
        if included:
            check_scene(scene, assembly)
        found += included
    return found


def check_choice(choice: Choice, assembly: Assembly) -> None:
    """Refuse targets and runtimes that do not exist."""
    for group, names in {"target": choice.targets, "runtime": choice.runtimes}.items():
        options = assembly.composer.options(group)
        for name in names:
            if name not in options:
                raise UsageError(f"unknown {group} '{name}'", hint=nearest(name, options))
