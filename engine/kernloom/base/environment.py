"""The state of this machine and checkout as recorded with results; unknown is said so."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernloom.base.machine import cpu_facts, machine_class, machine_facts

UNKNOWN = "unknown"
_QUICK_S = 10
_LIMITS = {
    "stack": resource.RLIMIT_STACK,
    "address_space": resource.RLIMIT_AS,
    "locked_memory": resource.RLIMIT_MEMLOCK,
    "files": resource.RLIMIT_NOFILE,
}


def host_facts() -> dict[str, Any]:
    """CPU, microcode, governor, kernel and limits, without anything that identifies the machine."""
    facts = machine_facts()
    names = ("cpu", "cores", "usable_cores", "isa", "features", "system", "kernel", "memory_total")
    known = {name: facts[name] for name in names}
    limits = {name: _limit(which) for name, which in _LIMITS.items()}
    cpu = cpu_facts()
    return {
        **known,
        "microcode": cpu.get("microcode") or UNKNOWN,
        "governor": facts["governor"] or UNKNOWN,
        "distribution": _distribution(),
        "limits": limits,
    }


def same_class(host: Mapping[str, Any]) -> bool:
    """Whether facts about a host are those of a machine of this one's class."""
    return all(host.get(name) == value for name, value in machine_class().items())


def _limit(which: int) -> int | str:
    soft, _ = resource.getrlimit(which)
    return "unlimited" if soft == resource.RLIM_INFINITY else soft


def _distribution() -> str:
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return UNKNOWN
    lines = (line.partition("=") for line in text.splitlines())
    named = {key: value.strip('"') for key, _, value in lines}
    return named.get("PRETTY_NAME") or UNKNOWN


def git_facts(folder: Path) -> dict[str, Any]:
    """The commit that is checked out in a folder, and whether files differ from it."""
    commit = _said(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit is None:
        return {"commit": UNKNOWN}
    changes = _said(["git", "-C", str(folder), "status", "--porcelain", "--", "."])
    return {"commit": commit, "changed": UNKNOWN if changes is None else bool(changes)}


def package_of(tool: Path) -> str:
    """The distribution's package of a program, with its version: `gcc-12 12.2.0-14`."""
    # A link in /usr/bin may lead to the file that the package has, which may be known under
    # its path before /usr was merged.
    for path in dict.fromkeys([str(tool.resolve()), str(tool)]):
        if said := _said(["dpkg-query", "--search", path]):
            name = said.splitlines()[0].partition(": ")[0].partition(",")[0]
            version = _said(["dpkg-query", "--show", "--showformat=${Version}", name])
            return f"{name.partition(':')[0]} {version or UNKNOWN}"
        if said := _said(["rpm", "--query", "--file", path]):
            return said.splitlines()[0]
    return UNKNOWN


def _said(argv: list[str]) -> str | None:
    """What a program prints; None if it fails or does not exist."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_QUICK_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
