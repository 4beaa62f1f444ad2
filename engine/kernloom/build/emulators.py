"""Which emulators are on this machine, and whether they are new enough."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from kernloom.build.toolchains import ask, how_to_install, read_cache, version_number, write_cache
from kernloom.config.schema import Emulator
from kernloom.errors import UnavailableError

_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class FoundEmulator:
    """An emulator on this machine."""

    path: Path
    version: str


def locate(emulator: Emulator) -> Path:
    """Where the emulator is, or UnavailableError with what to install."""
    found = shutil.which(emulator.program)
    if not found:
        where = "there" if os.sep in emulator.program else "on the PATH"
        raise UnavailableError(
            f"no emulator '{emulator.program}' {where} (target.emulator.program)",
            hint=install_hint(emulator),
        )
    return Path(found).absolute()


def find_emulator(emulator: Emulator, cache: Path) -> FoundEmulator:
    """The emulator, if it is new enough; its version is remembered for as long as the file is."""
    path = locate(emulator)
    version = _version(emulator, path, cache / "emulators.json")
    if version_number(version) < version_number(emulator.minimum_version):
        raise UnavailableError(
            f"emulator '{emulator.program}': {path} is version {version}, "
            f"but {emulator.minimum_version} or newer is needed",
            hint=install_hint(emulator),
        )
    return FoundEmulator(path, version)


def install_hint(emulator: Emulator) -> str:
    return how_to_install(emulator.program, emulator.install)


def _version(emulator: Emulator, path: Path, file: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from None
    stamp = [status.st_mtime_ns, status.st_size]
    record = read_cache(file).get(str(path))
    if isinstance(record, dict) and record.get("stamp") == stamp:
        return str(record.get("version"))
    try:
        said = ask([path, "--version"])
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
    write_cache(file, str(path), {"stamp": stamp, "version": found[1]})
    return found[1]
