"""The scenes that `check` runs: chosen by overrides and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from kernloom.base.errors import UsageError
from kernloom.config.naming import EXPERIMENT
from kernloom.config.overrides import Override, Overrides
from kernloom.config.schema import OBSERVATIONS
from kernloom.run.assembly import Assembly
from kernloom.run.fleets import check_on_this_machine
from kernloom.run.progress import Progress
from kernloom.scene.choosing import Choice, Pick, check_named, make_choice
from kernloom.scene.overrides import CHOSEN, overrides_of
from kernloom.scene.reading import SceneSpec, read_scenes
from kernloom.scene.running import SceneResults, SceneRunner
from kernloom.scene.selection import chosen_picks

ALL = "all"
ABOUT_ONE_RUN = (*OBSERVATIONS, "trace_level", "whatif", "show")
"""Root keys that describe or vary a single run."""


def only_scenes(flags: Mapping[str, str]) -> bool:
    """Whether the cases of workloads are left out."""
    return "scene" in flags or "accept" in flags


@dataclass(frozen=True)
class ChosenScenes:
    """The cases of scenes that a command line chooses."""

    picks: tuple[Pick, ...]
    choice: Choice
    more: Overrides
    """Overrides that change their experiments."""
    accept: bool

    @classmethod
    def of(cls, assembly: Assembly, overrides: Overrides, flags: Mapping[str, str]) -> ChosenScenes:
        """Scenes of the chosen workloads and targets. Cases and presets belong to workloads: with
        one of them, scenes run only if `--scene` names them."""
        choice = make_choice(
            ",".join(assembly.composer.chosen(overrides, "target")),
            ",".join(map(str, overrides.values("runtime"))),
            "" if flags.get("scene") == ALL else flags.get("scene", ""),
            flags.get("manual", ""),
            flags.get("rounds", ""),
            skip_golden="skip-golden" in flags,
        )
        chosen = cls((), choice, overrides.where(_adds), "accept" in flags)
        named = only_scenes(flags)
        if not named and (overrides.values("case") or any(overrides.values(EXPERIMENT))):
            return chosen
        scenes = read_scenes(assembly.places)
        check_named(choice, scenes)
        workloads = overrides.values("workload")
        picks = chosen_picks(scenes, choice, assembly, workloads)
        if named and not picks:
            raise UsageError(
                f"no chosen scene runs on {', '.join(choice.targets)}",
                hint=f"{_targets_text(scenes, choice)}--manual include adds manual cases.",
            )
        if picks:
            _check_about_scenes(chosen.more)
            _check_fleet(assembly, picks[0], chosen.more)
        return cls(tuple(picks), choice, chosen.more, chosen.accept)

    def run(self, assembly: Assembly, progress: Progress, stderr: TextIO) -> SceneResults:
        """Run them, and print the accepted changes."""
        runner = SceneRunner(assembly, self.choice, progress, self.more)
        results = runner.run(self.picks, accept=self.accept)
        if self.accept:
            for line in results.accepted or ["nothing changed"]:
                print(f"accepted: {line}", file=stderr)
        return results


def _check_about_scenes(more: Overrides) -> None:
    """Refuse keys that look into one run: every case would overwrite the file of the others."""
    for override in more:
        if override.root in ABOUT_ONE_RUN and any(value is not None for value in override.values):
            raise UsageError(
                f"{override.text} is about one run, and does not apply to scenes",
                hint="Use `kernloom run`.",
            )


def _check_fleet(assembly: Assembly, pick: Pick, more: Overrides) -> None:
    """Refuse a remote fleet, chosen by an override or by the project's root config."""
    overrides = overrides_of(pick, assembly).then(more.about("fleet"))
    (point,) = assembly.composer.points(overrides)
    check_on_this_machine(point.data["fleet"], "check")


def _adds(override: Override) -> bool:
    """Whether an override changes the experiments of scenes, and does not choose among them."""
    chooses = override.group and override.key in CHOSEN
    return not chooses and override.root not in ("case", EXPERIMENT)


def _targets_text(scenes: Sequence[SceneSpec], choice: Choice) -> str:
    """The targets of the chosen cases, for a hint."""
    found = {
        target: None
        for scene in scenes
        for case in scene.cases
        if choice.has_case(scene.name, case.name)
        for target in case.targets
    }
    return f"They run on {', '.join(found)}: add target={','.join(found)}. " if found else ""
