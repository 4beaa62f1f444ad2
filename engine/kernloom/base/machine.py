"""This machine: its class, for the identity of a trial, and its state, for the record."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_RELEVANT = re.compile(
    r"sse4_[12]|ssse3|avx.*|fma4?|f16c|bmi[12]|amx.*|vaes|gfni"
    r"|asimd.*|sve.*|sme(2.*|[bfi].*)?|i8mm|bf16|fphp|neon|vfpv[34]"
    r"|lsx|lasx|altivec|vsx"
)
"""CPU features that affect compilers or kernels."""

_PROC = Path("/proc")
_SYS = Path("/sys")
_CGROUPS = _SYS / "fs/cgroup"


@cache
def _cpuinfo() -> Mapping[str, str]:
    return parse_cpuinfo(_read(_PROC / "cpuinfo"))


def parse_cpuinfo(text: str) -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo, by lower-case name."""
    entries: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            entries.setdefault(name.strip().lower(), value.strip())
        elif entries:
            break
    return entries


_ALIASES = {"pni": "sse3", "lzcnt": "abm"}


@cache
def cpu_flags() -> frozenset[str]:
    """CPU features as Linux reports them, plus the common name where Linux uses another."""
    return flags_in(_cpuinfo())


def flags_in(info: Mapping[str, str]) -> frozenset[str]:
    """CPU features in /proc/cpuinfo: `flags` on x86, `Features` on aarch64, the isa on RISC-V."""
    extensions = re.sub(r"^rv(32|64)", "", info.get("isa", ""))
    single, *named = extensions.split("_")
    listed = (info.get("flags") or info.get("features") or "").split()
    aliases = [alias for name, alias in _ALIASES.items() if name in listed]
    return frozenset([*listed, *aliases, *single, *named])


def cpu_model(info: Mapping[str, str]) -> str:
    """The CPU's name, plus the model numbers that differ where virtual machines use one name."""
    name = info.get("model name") or info.get("uarch") or info.get("cpu") or info.get("hardware")
    names = ("vendor_id", "cpu family", "model", "cpu implementer", "cpu part", "cpu variant")
    numbers = "/".join(info[key] for key in names if info.get(key))
    return " ".join(part for part in (name, f"({numbers})" if numbers else "") if part) or "unknown"


@cache
def machine_class() -> dict[str, Any]:
    """The machine's class: trials of machines of one class are interchangeable."""
    flags = cpu_flags()
    return {
        "cpu": cpu_model(_cpuinfo()),
        "cores": os.cpu_count() or 1,
        "isa": os.uname().machine,
        "features": sorted(flag for flag in flags if _RELEVANT.fullmatch(flag) or len(flag) == 1),
    }


def cpu_facts() -> Mapping[str, str]:
    """The first processor's entries of /proc/cpuinfo, by lower-case name."""
    return _cpuinfo()


def machine_facts() -> dict[str, Any]:
    """The machine's class and current state, without anything that identifies the machine."""
    system = os.uname()
    memory = _meminfo()
    governor = _read(_SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()
    return {
        **machine_class(),
        "system": system.sysname,
        "kernel": system.release,
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_total": memory.get("MemTotal", 0),
        "memory_available": available_memory(),
        "governor": governor or None,
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def available_memory() -> int:
    """Bytes this process may still use without swapping or being killed by its cgroup."""
    memory = _meminfo()
    free = memory.get("MemAvailable", memory.get("MemFree", 0))
    room = cgroup_memory_left(_CGROUPS, _read(_PROC / "self/cgroup"))
    return free if room is None else min(free, room)


def cgroup_memory_left(mount: Path, membership: str) -> int | None:
    """Memory left below the limits of a process's cgroups, or None without a limit.

    `membership` is the text of its /proc/PID/cgroup. Both cgroup versions are read, at every level;
    inside a container the process's own group is usually mounted as the top.
    """
    rooms = []
    for line in membership.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        top = mount / "memory" if controllers else mount
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            if not folder.is_relative_to(top):
                break
            room = _memory_left(folder)
            if room is not None:
                rooms.append(room)
    return min(rooms) if rooms else None


def _memory_left(folder: Path) -> int | None:
    for limit_file, usage_file in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit = _number(_read(folder / limit_file))
        if limit is None:
            continue
        used = _number(_read(folder / usage_file)) or 0
        cached = re.search(r"^(?:total_)?inactive_file (\d+)$", _read(folder / "memory.stat"), re.M)
        return max(0, limit - used + (int(cached.group(1)) if cached else 0))
    return None


def _meminfo() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", _read(_PROC / "meminfo"), re.MULTILINE)
    return {name: int(kilobytes) * 1024 for name, kilobytes in found}


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
