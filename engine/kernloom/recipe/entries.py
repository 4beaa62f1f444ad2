"""Entries of a recipe: its points as configs that this machine can plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.base.errors import KernloomError
from kernloom.base.files import canonical_json
from kernloom.config.accelerator import OVERRIDDEN, recorded_provenance
from kernloom.config.compose import Composer, Point
from kernloom.measure.trial import Trial
from kernloom.recipe.fields import LOCAL_KEYS
from kernloom.recipe.replay import LocalConfigs, Replay

PINNED = ("fixed", "model")
"""Providers of the parameters of a replay. Parameters of a step that was fused into another have no
effect and are not recorded: the model chooses some."""
OWN_CONFIG = ("toolchain", "target", "arch", "pipeline")
"""Groups that a recipe refers to by name: their files are this machine's own."""


@dataclass(frozen=True)
class Entry:
    """One trial of a recipe: its point, and the artifacts it had when the recipe was written."""

    point: Point
    artifacts: Mapping[str, str]
    """Name -> key; empty if there is no lock."""
    notes: tuple[str, ...] = ()
    """Differences between replay and recipe, including edits to the recipe."""


def differences(entry: Entry, trial: Trial) -> list[str]:
    """Artifacts that differ from those at the time the recipe was written."""
    now = {str(item["name"]): item["key"] for item in trial.artifacts}
    return [
        f"{name} is not the artifact the recipe was written with"
        for name, key in entry.artifacts.items()
        if now and now.get(name) != key
    ]


class Entries:
    """Makes entries from the configs of a recipe. Equal sections of them are one object: planning
    works once per object."""

    def __init__(self, composer: Composer, local: Mapping[str, Any]) -> None:
        """`local` is a composed config for everything that recipes omit."""
        self._here = LocalConfigs(composer)
        self._kept = {key: local[key] for key in LOCAL_KEYS if key in local}
        self._sections: dict[str, Any] = {}

    def entry(
        self,
        config: Mapping[str, Any],
        swept: Mapping[str, Any],
        artifacts: Mapping[str, str],
        where: str,
        notes: Sequence[str] = (),
    ) -> Entry:
        replay = Replay(self._here, where)
        data = {**self._shared(replay.config(config)), **self._kept, "recipe": None, "rerun": "all"}
        return Entry(Point(dict(swept), data), artifacts, (*notes, *replay.notes))

    def _shared(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._sections.setdefault(f"{name}:{canonical_json(section)}", section)
            for name, section in config.items()
        }


def recorded_config(trial: Trial) -> dict[str, Any]:
    """The config of a trial as a recipe holds it: without what belongs to whoever runs it."""
    config = {key: value for key, value in plain(trial.config).items() if key not in LOCAL_KEYS}
    if trial.conditions.get(OVERRIDDEN):
        # A replay has no overrides of its own, and its values rest on the same data.
        arch = config["arch"]
        provenance = recorded_provenance(arch.get("provenance") or {}, trial.conditions)
        config["arch"] = {**arch, "provenance": provenance}
    return config


def refusals(trials: Sequence[Trial], composer: Composer) -> list[str]:
    """Why a replay on this machine would refuse a recipe of these trials, with a remedy; one text
    per refusal."""
    here = LocalConfigs(composer)
    found: dict[str, str] = {}
    for trial in trials:
        try:
            Replay(here, "config").config(pinned(recorded_config(trial), trial.params))
        except KernloomError as error:
            key = getattr(error, "key", "").removeprefix("config.")
            group = key.partition(".")[0]
            advice = error.hint
            if group in OWN_CONFIG:
                advice = (
                    f"Put {key} into configs/{group}/NAME.yaml, with `name: NAME` and "
                    f"`defaults: [{trial.config[group].get('name')}, _self_]`, and run with "
                    f"{group}=NAME: a replay takes it from there."
                )
            found.setdefault(error.message.removeprefix("config."), advice)
    return [f"{message}\n  {advice}" if advice else message for message, advice in found.items()]


def pinned(config: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The config in which every select stage returns exactly the chosen parameters."""
    config, params = plain(config), plain(params)
    choice = {"providers": list(PINNED), "fixed": params, "file": None}
    stages = {
        name: {**stage, **choice} if stage.get("use") == "select" else stage
        for name, stage in config["pipeline"]["stages"].items()
    }
    return {**config, "pipeline": {**config["pipeline"], "stages": stages}, "select": choice}


def plain(value: Any) -> Any:
    """Plain data: mappings with text keys, lists, texts and numbers."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
