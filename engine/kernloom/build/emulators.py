"""Emulators on this machine: detection and suitability."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernloom.base.errors import UnavailableError
from kernloom.base.files import file_stamp
from kernloom.base.sealed import read_cache, write_cache
from kernloom.build.probe import query_tool, scratch
from kernloom.build.toolchains import install_commands, version_number
from kernloom.config.schema import Emulator

_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")
_PLUGINS = re.compile(r"^-plugin\b", re.MULTILINE)


@dataclass(frozen=True)
class FoundEmulator:
    """An emulator on this machine."""

    path: Path
    version: str


def locate(emulator: Emulator) -> Path:
    """Path of the emulator, or UnavailableError with what to install."""
    found = shutil.which(emulator.program)
    if not found:
        where = "there" if os.sep in emulator.program else "on the PATH"
        raise UnavailableError(
            f"no emulator '{emulator.program}' {where} (target.emulator.program)",
            hint=install_hint(emulator),
        )
    return Path(found).absolute()


def find_emulator(emulator: Emulator, cache: Path) -> FoundEmulator:
    """The emulator, if it is new enough and can count. Its version and features are cached until
    its file changes."""
    path = locate(emulator)
    record = _record(emulator, path, cache / "emulators.json")
    version = str(record["version"])
    if version_number(version) < version_number(emulator.minimum_version):
        raise UnavailableError(
            f"emulator '{emulator.program}': {path} is version {version}, "
            f"but {emulator.minimum_version} or newer is needed",
            hint=install_hint(emulator),
        )
    if not record["plugins"]:
        raise UnavailableError(
            f"emulator '{emulator.program}': {path}, version {version}, takes no plugins, "
            "and one counts the instructions",
            hint="Some systems link it statically, which leaves them out. Take one that was built "
            "with --enable-plugins, and name it: target.emulator.program=PATH.",
        )
    return FoundEmulator(path, version)


def install_hint(emulator: Emulator) -> str:
    return install_commands(emulator.program, emulator.install)


def _record(emulator: Emulator, path: Path, file: Path) -> dict[str, Any]:
    """The emulator's version, and whether it supports plugins."""
    try:
        stamp = file_stamp(path)
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from None
    record = read_cache(file).get(str(path))
    if isinstance(record, dict) and record.get("stamp") == stamp and "plugins" in record:
        return record
    try:
        with scratch(file.parent) as folder:
            said = query_tool([path, "--version"], folder)
            options = query_tool([path, "-h"], folder)
    except UnavailableError as error:
        raise UnavailableError(
            f"emulator '{emulator.program}': {error.message}", hint=install_hint(emulator)
        ) from None
    found = _VERSION.search(said)
    if not found:
        first = said.splitlines()[0] if said else "nothing"
        raise UnavailableError(
            f"emulator '{emulator.program}': {path} does not tell its version, but: {first}",
            hint=install_hint(emulator),
        )
    plugins = _PLUGINS.search(options) is not None
    fresh = {"stamp": stamp, "version": found[1], "plugins": plugins}
    write_cache(file, str(path), fresh)
    return fresh
