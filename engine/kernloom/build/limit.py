"""The time limit of compilations: a multiple of the slowest one that was successful before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LEAST_S = 10.0
"""Shortest limit: on a busy machine a compiler may wait for seconds."""
USUAL_S = 5.0
"""Time of a compilation as long as none was successful."""
_CHECK_S = 0.25
_PROC = Path("/proc")


class Stopped(Exception):
    """A compilation that was stopped."""


@dataclass
class CompileLimit:
    """Stops compilers that take this many times longer than any that has ended well. Shared by the
    jobs of a build, so that the first of them set the limit for the others."""

    factor: float
    slowest: float = 0.0
    """Seconds of the slowest kernel that was compiled; 0: none was yet."""

    def seen(self, seconds: float) -> None:
        """A kernel was compiled."""
        self.slowest = max(self.slowest, seconds)

    def wait(self, process: subprocess.Popen[bytes]) -> bytes:
        """The output of a process; Stopped if it takes too long."""
        start = time.monotonic()
        while True:
            try:
                return process.communicate(timeout=_CHECK_S)[0]
            except subprocess.TimeoutExpired:
                spent = time.monotonic() - start
                if spent > max(LEAST_S, self.factor * (self.slowest or USUAL_S)):
                    _kill(process)
                    raise Stopped(self._reason(spent)) from None

    def _reason(self, spent: float) -> str:
        before = f"the slowest kernel before it was compiled in {self.slowest:.2g} s"
        if not self.slowest:
            before = f"no kernel was compiled before, so {USUAL_S:g} s count as usual"
        return (
            f"stopped after {spent:.0f} s: {before} (build.limit={self.factor:g}, at least "
            f"{LEAST_S:g} s)"
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a compiler and the programs that it has started, which hold its output."""
    with contextlib.suppress(ProcessLookupError):
        # Stopped, it starts no other while these are listed.
        os.kill(process.pid, signal.SIGSTOP)
    for pid in [*_descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def _descendants(pid: int) -> Iterator[int]:
    parents: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold anything.
            words = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            parent = int(words.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    waiting = [pid]
    while waiting:
        found = parents.get(waiting.pop(), [])
        yield from found
        waiting += found
