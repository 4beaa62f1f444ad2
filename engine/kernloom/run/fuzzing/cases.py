"""Failures of draws, saved as files that run again: `kernloom check --fuzz-case FILE`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.base.files import sha256_json, write_atomically
from kernloom.base.places import Places
from kernloom.config.convert import convert
from kernloom.config.reader import dump_yaml, read_yaml

FOLDER = "fuzz"
FLAG = "--fuzz-case"


@dataclass(frozen=True)
class SavedDraw:
    """A draw of a file: overrides, and offsets of tensors."""

    overrides: tuple[str, ...]
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FuzzCase:
    """Draws that run one after the other in one process; the last one failed."""

    draws: tuple[SavedDraw, ...]
    found: str = ""
    """The failure, for people."""


def save_case(case: FuzzCase, workload: str, target: str, places: Places) -> Path:
    """Save a case below the project's `.kernloom/fuzz`; equal cases have the same file."""
    draws: list[Any] = []
    for draw in case.draws:
        offsets = {"offsets": dict(draw.offsets)} if draw.offsets else {}
        draws.append({"overrides": list(draw.overrides), **offsets})
    name = f"{workload}-{target}-{sha256_json(draws)[:8]}.yaml"
    folder = places.store.parent / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    text = dump_yaml({"found": case.found, "draws": draws}, width=1000)
    write_atomically(path, f"# Run it again: {command_of(path)}\n{text}")
    return path


def command_of(path: Path) -> str:
    """The command that runs a case again, in this folder."""
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"kernloom check {FLAG} {shlex.quote(str(shown))}"


def read_case(path: Path) -> FuzzCase:
    """The case in a file."""
    data = read_yaml(path)
    if not isinstance(data, Mapping):
        raise ConfigError("is no case that `check --fuzz` has saved", key=str(path))
    case = convert(FuzzCase, data, str(path))
    if not case.draws:
        raise ConfigError("has no draws", key=str(path))
    for draw in case.draws:
        for name, offset in draw.offsets.items():
            if not 0 <= offset < 64:
                raise ConfigError(
                    f"{offset} is no offset", key=f"{path}: {name}", hint="Allowed: 0 to 63."
                )
    return case
