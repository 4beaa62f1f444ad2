"""The sandbox of runners: whether this system has it, and the runner's options for it.

The filter itself is native/runner/sandbox.c.
"""

from __future__ import annotations

import platform
from pathlib import Path

ISAS = ("aarch64", "riscv64", "x86_64")
_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")


def sandbox_problem() -> str:
    """Why runners cannot filter the system calls of kernels on this machine; empty if they can."""
    if platform.machine() not in ISAS:
        return f"there is no filter for {platform.machine()}"
    try:
        actions = _ACTIONS.read_text(encoding="ascii").split()
    except OSError:
        return "this system has no filters of system calls (seccomp)"
    return "" if "trap" in actions else "this system's filters cannot report a call"


def sandbox_options(sandbox: tuple[str, ...] | None) -> list[str]:
    """The options of a runner with these groups of system calls."""
    if sandbox is None:
        return ["--no-sandbox"]
    return [f"--allow={','.join(sandbox)}"] if sandbox else []
