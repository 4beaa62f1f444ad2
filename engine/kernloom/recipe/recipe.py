"""Recipes: the resolved configs of a run, with the chosen parameters pinned, in one YAML file.

A recipe may come from a stranger, so it is data and nothing else: compilers are looked up by the
name of a toolchain that is configured here, flags must be of kinds that reach no other program, and
paths stay inside the template and project folders (as they do for every config).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernloom import __version__
from kernloom.config.compose import Point
from kernloom.config.groups import Groups
from kernloom.config.reader import dump_yaml, load_yaml
from kernloom.config.schema import NOT_IDENTITY, ROOT_KEYS
from kernloom.errors import ConfigError, nearest
from kernloom.files import write_atomically
from kernloom.measure.trial import Trial

FORMAT = 1
LOCAL_KEYS = NOT_IDENTITY
"""Root keys that belong to whoever runs a recipe, not to the recipe."""
_FLAG = re.compile(
    r"-(O\w*|g\d?|w|pipe|std=[\w+]+|U\w+|D\w+(=[\w.]*)?"
    r"|W[\w-]+(=[\w-]+)?"
    r"|m(?!llvm)[\w.-]+(=[\w.,+-]+)?"
    r"|f(?!plugin|pass-plugin|dump|profile|auto-profile|use-ld|module|compare-debug|crash)"
    r"[\w-]+(=[\w.,+-]+)?)"
)
"""Compiler flags that choose code generation, and can name neither programs nor files."""


def write_recipe(path: Path, trials: Sequence[Trial]) -> None:
    """A recipe of these trials, in their order."""
    document = {
        "recipe": FORMAT,
        "kernloom": __version__,
        "trials": [_entry(trial) for trial in trials],
    }
    text = "# Replay: kernloom recipe run FILE\n" + dump_yaml(document)
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", key="recipe") from None


def _entry(trial: Trial) -> dict[str, Any]:
    config = {key: value for key, value in trial.config.items() if key not in LOCAL_KEYS}
    return {
        "point": dict(trial.point),
        "config": pinned(config, trial.params),
        "expected": {
            "id": trial.id,
            "status": trial.status,
            "verified": trial.verified,
            "artifacts": {item["name"]: item["key"] for item in trial.artifacts},
            "median_ns": trial.metrics.get("median_ns"),
        },
    }


def pinned(config: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The config with every select stage answering just what was chosen."""
    config, params = _plain(config), _plain(params)
    stages = {
        name: {**stage, "providers": ["fixed"], "fixed": params, "file": None}
        if stage.get("use") == "select"
        else stage
        for name, stage in config["pipeline"]["stages"].items()
    }
    return {
        **config,
        "pipeline": {**config["pipeline"], "stages": stages},
        "select": {"providers": ["fixed"], "fixed": params, "file": None},
    }


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


def differences(entry: Entry, trial: Trial) -> list[str]:
    """What was built otherwise than when the recipe was written."""
    now = {str(item["name"]): item["key"] for item in trial.artifacts}
    return [
        f"{name} is not the artifact the recipe was written with"
        for name, key in entry.artifacts.items()
        if now and now.get(name) != key
    ]


def read_recipe(path: Path, groups: Groups, local: Mapping[str, Any]) -> list[Entry]:
    """The trials of a recipe; `local` is a composed config that gives what recipes do not."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", key=str(path)) from None
    data = load_yaml(text, where=str(path))
    if not isinstance(data, dict) or "recipe" not in data:
        raise ConfigError("is not a recipe: it has no `recipe: 1`", key=str(path))
    if data["recipe"] != FORMAT:
        raise ConfigError(
            f"is a recipe of format {data['recipe']}; this Kernloom reads {FORMAT}", key=str(path)
        )
    entries = data.get("trials")
    if not isinstance(entries, list) or not entries:
        raise ConfigError("has no trials", key=str(path))
    return [_read(entry, groups, local, f"{path}: trials[{i}]") for i, entry in enumerate(entries)]


def _read(entry: Any, groups: Groups, local: Mapping[str, Any], where: str) -> Entry:
    config = entry.get("config") if isinstance(entry, dict) else None
    if not isinstance(config, dict):
        raise ConfigError("has no config", key=where)
    for key in config:
        if key not in ROOT_KEYS or key in LOCAL_KEYS:
            allowed = [name for name in ROOT_KEYS if name not in LOCAL_KEYS]
            raise ConfigError(f"unknown key '{key}'", key=where, hint=nearest(key, allowed))
    check_harmless(config, groups, where)
    kept = {key: local[key] for key in LOCAL_KEYS if key in local}
    swept, expected = entry.get("point") or {}, entry.get("expected") or {}
    artifacts = expected.get("artifacts") if isinstance(expected, dict) else None
    if not isinstance(swept, dict) or not isinstance(artifacts, (dict, type(None))):
        raise ConfigError("point and expected.artifacts must be keys and values", key=where)
    # What to install is our advice, never the recipe's.
    known = groups.read("toolchain", str(config["toolchain"]["name"]))
    toolchain = {**config["toolchain"], "install": known.get("install", {})}
    config = {**config, "toolchain": toolchain}
    point = Point(swept, {**config, **kept, "recipe": None, "rerun": "all"})
    return Entry(point, artifacts or {})


def check_harmless(config: Mapping[str, Any], groups: Groups, where: str) -> None:
    """Refuse compilers that are not configured here, and flags that reach beyond compiling."""
    toolchain = config.get("toolchain")
    if not isinstance(toolchain, dict):
        raise ConfigError("has no toolchain", key=where)
    name = str(toolchain.get("name"))
    if name not in groups.options("toolchain"):
        raise ConfigError(
            f"unknown toolchain '{name}'",
            key=f"{where}.toolchain.name",
            hint=nearest(name, groups.options("toolchain")),
        )
    known = groups.read("toolchain", name)
    if toolchain.get("tools") != known.get("tools"):
        raise ConfigError(
            f"names other tools than this machine's toolchain '{known.get('name')}'",
            key=f"{where}.toolchain.tools",
            hint=f"Allowed: {known.get('tools')}. Add a toolchain of your own for others.",
        )
    arch = config.get("arch")
    for key, flag in _flags(toolchain, "toolchain"):
        _check_flag(flag, f"{where}.{key}")
    for key, flag in _flags({"flags": arch.get("flags")} if isinstance(arch, dict) else {}, "arch"):
        _check_flag(flag, f"{where}.{key}")
    pipeline = config.get("pipeline")
    stages = pipeline.get("stages") if isinstance(pipeline, dict) else None
    named = {f"pipeline.stages.{name}": stage for name, stage in (stages or {}).items()}
    for key, section in {"select": config.get("select"), **named}.items():
        if isinstance(section, dict) and section.get("file"):
            raise ConfigError(
                "a recipe cannot name a file of parameters", key=f"{where}.{key}.file"
            )


def _flags(section: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Every flag in a section, however it is grouped."""
    for key, value in section.items():
        if "flags" in key or key == "variants":
            yield from ((f"{name}.{key}", flag) for flag in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield value


def _check_flag(flag: Any, key: str) -> None:
    if not isinstance(flag, str) or not _FLAG.fullmatch(flag):
        raise ConfigError(
            f"a recipe cannot use the flag {flag!r}",
            key=key,
            hint="Allowed: code generation flags (-O -f -m -D -W -std ...) that name no files.",
        )
