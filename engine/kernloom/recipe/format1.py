"""Recipes of format 1: the resolved config of each trial, with a digest for each.

They are read, and no longer written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import sha256_json
from kernloom.config.renamed import with_current_keys
from kernloom.plan.artifact import is_key
from kernloom.recipe.entries import PINNED, Entries, Entry

FORMAT = 1
KEYS = ("recipe", "kernloom", "trials", "digest")
ENTRY_KEYS = ("point", "config", "expected", "digest")
EXPECTED_KEYS = ("id", "status", "verified", "artifacts", "median_ns")


def read_entries(data: Mapping[str, Any], path: Path, entries: Entries) -> list[Entry]:
    """The trials of a document."""
    trials = data.get("trials")
    if not isinstance(trials, list) or not trials:
        raise ConfigError("has no trials", key=str(path))
    for number, trial in enumerate(trials):
        if not isinstance(trial, dict) or not isinstance(trial.get("config"), dict):
            raise ConfigError("has no config", key=f"{path}: trials[{number}]")
    _check_keys(data, KEYS, str(path))
    edits = _edits(data, path)
    return [
        _read(trial, entries, f"{path}: trials[{number}]", edits[number])
        for number, trial in enumerate(trials)
    ]


def _digest(data: Mapping[str, Any]) -> str:
    """Hash of an entry, or of a document from the digests of its trials."""
    data = {key: value for key, value in data.items() if key != "digest"}
    if "trials" in data:
        data["trials"] = [entry.get("digest") for entry in data["trials"]]
    return sha256_json(data)[:32]


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


def _read(trial: dict[str, Any], entries: Entries, where: str, edited: str) -> Entry:
    _check_keys(trial, ENTRY_KEYS, where)
    swept, expected = with_current_keys(trial.get("point") or {}), trial.get("expected") or {}
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
    config = _with_providers(with_current_keys(trial["config"]))
    return entries.entry(config, swept, artifacts, where, [edited] if edited else [])


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
