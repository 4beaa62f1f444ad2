"""Packages that the targets lack on this machine, and the commands that install them.

The configs name the packages: the Debian commands of toolchains and emulators.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from kernloom.base.places import Places
from kernloom.config.groups import Groups, groups_of
from kernloom.run.targets import list_targets

SYSTEM = "debian"
_EXTRA = re.compile(r"kernloom\[([\w-]+)\]")


@dataclass(frozen=True)
class Missing:
    """The packages that are not installed."""

    targets: tuple[str, ...]
    """The targets that need them."""
    packages: tuple[str, ...]
    """Debian packages."""
    requirements: tuple[str, ...]
    """Python packages."""

    def commands(self) -> list[list[str]]:
        found = []
        if self.packages:
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
            found += [["apt-get", "update", "-qq"], [*install, *self.packages]]
        if self.requirements:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            found.append([*pip, *self.requirements])
        return found


def find_missing(places: Places) -> Missing:
    groups = groups_of(places)
    lacking = [target["name"] for target in list_targets(places) if not target["available"]]
    packages: dict[str, None] = {}
    requirements: dict[str, None] = {}
    for name in lacking:
        for command in _install_commands(groups, name):
            words = _words(command)
            if words[:2] == ["apt-get", "install"]:
                packages |= dict.fromkeys(words[2:])
            elif words[:4] == ["python", "-m", "pip", "install"]:
                requirements |= dict.fromkeys(_requirements(words[4:], places))
    return Missing(
        tuple(lacking),
        tuple(package for package in packages if not _has_package(package)),
        tuple(wanted for wanted in requirements if not _has_requirement(wanted)),
    )


def install(missing: Missing, stderr: TextIO) -> str:
    """Run the commands; returns the error, or ''."""
    if missing.packages and not shutil.which("apt-get"):
        return "there is no apt-get here: install the packages with this system's own tool"
    if missing.packages and os.geteuid() != 0:
        return "only root may install packages: run this as root, or run the command shown yourself"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in missing.commands():
        print(f"kernloom: {shlex.join(command)}", file=stderr, flush=True)
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=environment
            )
        except OSError as error:
            return f"{command[0]} cannot be started: {error.strerror}"
        if done.returncode != 0:
            return f"{shlex.join(command)} ended with exit code {done.returncode}"
    return ""


def _install_commands(groups: Groups, name: str) -> Iterable[str]:
    data = groups.read("target", name)
    toolchain = groups.defaults(data).get("toolchain")
    emulator = data.get("target", {}).get("emulator") or {}
    for section in (groups.read("toolchain", toolchain) if toolchain else {}, emulator):
        yield from _split(section)


def _split(section: Mapping[str, Any]) -> list[str]:
    text = str((section.get("install") or {}).get(SYSTEM, ""))
    return [part.strip() for part in text.split("&&") if part.strip()]


def _words(command: str) -> list[str]:
    """The words of a command; empty for a sentence, which some configs have instead of one."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _requirements(words: Iterable[str], places: Places) -> Iterable[str]:
    """Python packages by name; an extra of Kernloom is replaced by its requirements."""
    for word in words:
        extra = _EXTRA.fullmatch(word)
        if extra:
            yield from _extra(extra[1], places)
        else:
            yield word


def _extra(name: str, places: Places) -> list[str]:
    project = places.share / "pyproject.toml"
    if project.is_file():
        import tomllib

        data = tomllib.loads(project.read_text(encoding="utf-8"))
        return list(data["project"]["optional-dependencies"].get(name, ()))
    wanted = re.compile(rf"""extra\s*==\s*['"]{re.escape(name)}['"]""")
    found = importlib.metadata.requires("kernloom") or []
    return [text.partition(";")[0].strip() for text in found if wanted.search(text)]


def _has_package(package: str) -> bool:
    try:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True
        )
    except OSError:
        return False
    return "ok installed" in done.stdout


def _has_requirement(requirement: str) -> bool:
    name = re.match(r"[\w.-]+", requirement)
    try:
        importlib.metadata.version(name[0] if name else requirement)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
