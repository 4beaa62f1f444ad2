"""Wrappers of compilers: scripts, ccache, link farms.

A wrapper starts the real compiler and may add flags from anywhere. The real driver and the files
that a script names are part of the compiler's identity. Other inputs of a script cannot be listed,
so every command probes a compiler with `Wrapper.opaque` again for its behaviour with given flags.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernloom.base.files import sha256_text
from kernloom.build.probe import tool_output

_DRIVER = re.compile(r"^COLLECT_GCC=(.+)$", re.MULTILINE)
_COMPILER = re.compile(r'^ "?(/[^"\n]*?)"? "?-cc1"? ', re.MULTILINE)
_NAMED = re.compile(r"(?<![\w$}.])/[\w.+@%/-]+")
_NOT_INPUTS = ("/dev/", "/proc/", "/sys/")
_COMMAND = re.compile(r'^ "?/\S+ .*$', re.MULTILINE)
_TEMPORARY = re.compile(r"\bcc[A-Za-z0-9]{6}\b|(?<=-)[0-9a-f]{6,8}(?=\.)")
_LARGEST_SCRIPT = 1 << 20


@dataclass(frozen=True)
class Wrapper:
    """A compiler's wrapper, if it has one."""

    driver: Path | None = None
    """The wrapped compiler."""
    named: Mapping[str, Path] = field(default_factory=dict)
    """Part -> file that a script names."""
    opaque: bool = False
    """Whether there is a wrapper: its inputs and its compiler may change without a trace."""


def resolve_wrapper(driver: Path, target: Sequence[str], folder: Path) -> Wrapper:
    """The real program behind a driver, found by asking the driver what it would start."""
    said = tool_output([driver, *target, "-###", "-E", "-x", "c", os.devnull], folder).stderr
    named: dict[str, Path] = {}
    found = _DRIVER.search(said) or _COMPILER.search(said)
    real = _resolved(found[1], driver) if found else None
    behind = real if real and not real.samefile(driver) else None
    scripts = [path for path in (driver, behind) if path and is_script(path)]
    for script in scripts:
        named |= _named(script)
    return Wrapper(behind, named, opaque=bool(behind or scripts))


def is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _resolved(name: str, driver: Path) -> Path | None:
    """A program by its path, or the first of this name on the PATH that is not the wrapper."""
    folders = [""] if os.sep in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = Path(folder) / name
        if path.is_file() and os.access(path, os.X_OK) and not (folder and path.samefile(driver)):
            return path
    return None


def _named(script: Path) -> dict[str, Path]:
    """Files that a script names by absolute paths, and those named by scripts among them."""
    found: dict[str, Path] = {}
    waiting = [script]
    while waiting:
        for path in _paths_in(waiting.pop()):
            name = f"wrapper:{path.name}"
            if path.is_file() and path != script and path not in found.values():
                found[name if name not in found else f"wrapper:{path}"] = path
                if is_script(path):
                    waiting.append(path)
    return found


def _paths_in(script: Path) -> list[Path]:
    if script.stat().st_size > _LARGEST_SCRIPT:
        return []
    lines = script.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    named = [word for line in lines for word in _NAMED.findall(line)]
    return [Path(word) for word in named if not word.startswith(_NOT_INPUTS)]


def behaviour(said: str, made: str, folder: Path, driver: Path) -> str:
    """Hash of a compiler's behaviour: the commands it starts, and its output for a sample.

    The wrapper's own folder is left out: the same wrapper elsewhere is the same compiler.
    """
    commands = "\n".join(_COMMAND.findall(said))
    for place in (folder, driver.parent):
        commands = commands.replace(f"{place}/", "./")
    return sha256_text(f"{_TEMPORARY.sub('', commands)}\n{made}")
