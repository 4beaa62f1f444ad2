"""Recipes: the resolved configs of a run, with the chosen parameters pinned, in one YAML file.

Each trial has a digest, and so has the file as a whole, so that edits are detected. `fields`
decides which parts of a recipe are used, because it may come from a stranger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernloom import __version__
from kernloom.base.errors import ConfigError, KernloomError, nearest
from kernloom.base.files import canonical_json, sha256_json, write_atomically
from kernloom.config.accelerator import OVERRIDDEN, recorded_provenance
from kernloom.config.compose import Composer, Point
from kernloom.config.reader import RECIPE, dump_yaml, read_yaml
from kernloom.config.renamed import with_current_keys
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import is_key
from kernloom.recipe.fields import LOCAL_KEYS
from kernloom.recipe.replay import LocalConfigs, Replay

FORMAT = 1
KEYS = ("recipe", "kernloom", "trials", "digest")
ENTRY_KEYS = ("point", "config", "expected", "digest")
EXPECTED_KEYS = ("id", "status", "verified", "artifacts", "median_ns")
PINNED = ("fixed", "model")
"""Providers of the parameters of a replay. Parameters of a step that was fused into another have no
effect and are not recorded: the model chooses some."""


def write_recipe(path: Path, trials: Sequence[Trial]) -> None:
    """Write a recipe of these trials, in their order."""
    entries = [_sealed(_entry(trial)) for trial in trials]
    document = _sealed({"recipe": FORMAT, "kernloom": __version__, "trials": entries})
    text = "# Replay: kernloom recipe run FILE\n" + dump_yaml(document)
    if len(text) > RECIPE.size:
        raise ConfigError(
            f"{len(trials):,} trials are more than a recipe can hold",
            key="recipe",
            hint=f"At most {RECIPE.size >> 20} MiB are read back. Every trial is in the store.",
        )
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", key="recipe") from None


OWN_CONFIG = ("toolchain", "target", "arch", "pipeline")
"""Groups that a recipe refers to by name: their files are this machine's own."""


def refusals(trials: Sequence[Trial], composer: Composer) -> list[str]:
    """Why a replay on this machine would refuse a recipe of these trials, with a remedy; one text
    per refusal."""
    here = LocalConfigs(composer)
    found: dict[str, str] = {}
    for trial in trials:
        try:
            Replay(here, "config").config(_entry(trial)["config"])
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


def _entry(trial: Trial) -> dict[str, Any]:
    config = {key: value for key, value in trial.config.items() if key not in LOCAL_KEYS}
    if trial.conditions.get(OVERRIDDEN):
        # A replay has no overrides of its own, and its values rest on the same data.
        arch = config["arch"]
        provenance = recorded_provenance(arch.get("provenance") or {}, trial.conditions)
        config["arch"] = {**arch, "provenance": provenance}
    return {
        "point": _plain(trial.point),
        "config": pinned(config, trial.params),
        "expected": {
            "id": trial.id,
            "status": trial.status,
            "verified": trial.verified,
            "artifacts": {item["name"]: item["key"] for item in trial.artifacts},
            "median_ns": trial.metrics.get("median_ns"),
        },
    }


def _sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with its digest."""
    return {**data, "digest": _digest(data)}


def _digest(data: Mapping[str, Any]) -> str:
    """Hash of an entry, or of a document from the digests of its trials."""
    data = {key: value for key, value in data.items() if key != "digest"}
    if "trials" in data:
        data["trials"] = [entry.get("digest") for entry in data["trials"]]
    return sha256_json(data)[:32]


def pinned(config: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The config in which every select stage returns exactly the chosen parameters."""
    config, params = _plain(config), _plain(params)
    choice = {"providers": list(PINNED), "fixed": params, "file": None}
    stages = {
        name: {**stage, **choice} if stage.get("use") == "select" else stage
        for name, stage in config["pipeline"]["stages"].items()
    }
    return {**config, "pipeline": {**config["pipeline"], "stages": stages}, "select": choice}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class Entry:
    """One trial of a recipe: its point, and the artifacts it had when the recipe was written."""

    point: Point
    artifacts: Mapping[str, str]
    """Name -> key."""
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


def read_recipe(path: Path, composer: Composer, local: Mapping[str, Any]) -> list[Entry]:
    """The trials of a recipe; `local` is a composed config for everything that recipes omit."""
    data = _document(path)
    here, shared, edits = LocalConfigs(composer), Shared(), _edits(data, path)
    return [
        _read(entry, here, shared, local, f"{path}: trials[{i}]", edits[i])
        for i, entry in enumerate(data["trials"])
    ]


class Shared:
    """Equal sections of a recipe's trials as one object: planning works once per object."""

    def __init__(self) -> None:
        self._sections: dict[str, Any] = {}

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._sections.setdefault(f"{name}:{canonical_json(section)}", section)
            for name, section in config.items()
        }


def _document(path: Path) -> dict[str, Any]:
    data = read_yaml(path, RECIPE)
    if not isinstance(data, dict) or "recipe" not in data:
        raise ConfigError("is not a recipe: it has no `recipe: 1`", key=str(path))
    if data["recipe"] != FORMAT or isinstance(data["recipe"], (bool, float)):
        raise ConfigError(
            f"is a recipe of format {data['recipe']}; this Kernloom reads {FORMAT}", key=str(path)
        )
    entries = data.get("trials")
    if not isinstance(entries, list) or not entries:
        raise ConfigError("has no trials", key=str(path))
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("config"), dict):
            raise ConfigError("has no config", key=f"{path}: trials[{number}]")
    _check_plain(data, str(path))
    _check_keys(data, KEYS, str(path))
    return data


def _check_plain(data: Any, where: str) -> None:
    """Refuse anything but texts and numbers under text keys; YAML tags could create other
    objects."""
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise ConfigError(f"expected text as a key, not {key!r}", key=where)
            _check_plain(value, f"{where}.{key}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            _check_plain(value, f"{where}[{number}]")
    elif data is not None and not isinstance(data, (str, int, float)):
        raise ConfigError(f"expected text or a number, not {type(data).__name__}", key=where)


def _edits(data: Mapping[str, Any], path: Path) -> list[str]:
    """For each trial of a recipe, a note if it was edited; else ''."""
    entries = data["trials"]
    if any("digest" not in part for part in (data, *entries)):
        return [f"{path} has no digest, so it cannot be told whether it was edited"] * len(entries)
    whole = "" if _is_sealed(data) else f"{path} was edited since it was written"
    return [
        whole if _is_sealed(entry) else f"{path}: trials[{number}] was edited since it was written"
        for number, entry in enumerate(entries)
    ]


def _is_sealed(data: Mapping[str, Any]) -> bool:
    return bool(data["digest"] == _digest(data))


def _read(
    entry: dict[str, Any],
    here: LocalConfigs,
    shared: Shared,
    local: Mapping[str, Any],
    where: str,
    edited: str,
) -> Entry:
    _check_keys(entry, ENTRY_KEYS, where)
    swept, expected = with_current_keys(entry.get("point") or {}), entry.get("expected") or {}
    artifacts = expected.get("artifacts") or {} if isinstance(expected, dict) else None
    if not isinstance(swept, dict) or not isinstance(artifacts, dict):
        raise ConfigError("point and expected.artifacts must be keys and values", key=where)
    _check_keys(expected, EXPECTED_KEYS, f"{where}.expected")
    for name, artifact in artifacts.items():
        if not is_key(artifact):
            raise ConfigError(
                f"{artifact!r} is not the key of an artifact",
                key=f"{where}.expected.artifacts.{name}",
                hint="Allowed: 32 hexadecimal digits.",
            )
    replay = Replay(here, where)
    config = shared.config(_with_providers(replay.config(with_current_keys(entry["config"]))))
    kept = {key: local[key] for key in LOCAL_KEYS if key in local}
    data = {**config, **kept, "recipe": None, "rerun": "all"}
    return Entry(Point(swept, data), artifacts, (*filter(None, [edited]), *replay.notes))


def _check_keys(data: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise ConfigError(f"unknown key '{key}'", key=where, hint=nearest(str(key), known))


def _with_providers(config: dict[str, Any]) -> dict[str, Any]:
    """The config with a provider for every parameter: early recipes have only `fixed`."""

    def answered(section: Any) -> Any:
        if isinstance(section, dict) and section.get("providers") == ["fixed"]:
            return {**section, "providers": list(PINNED)}
        return section

    pipeline = config.get("pipeline")
    if isinstance(pipeline, dict) and isinstance(pipeline.get("stages"), dict):
        stages = {name: answered(stage) for name, stage in pipeline["stages"].items()}
        config = {**config, "pipeline": {**pipeline, "stages": stages}}
    return {**config, "select": answered(config.get("select"))}
