"""Which cores compilers may use while kernels are measured on one of them.

Whoever holds the lock has the measured core: the engine while it measures, a compiler otherwise. So
no core is idle, and nothing is compiled on a core where something is being measured.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".measuring"
_PATIENCE_S = 0.01


class MeasuredCore:
    """The engine's side: the core on which it measures while SCons builds on the others."""

    def __init__(self, number: int, build: Path) -> None:
        self.number = number
        self._lock = build / LOCK

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no compiler is on it, and keep it so."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


class Cores:
    """The compilers' side, with as many jobs as there are cores."""

    def __init__(self, measured: int | None, build: Path) -> None:
        self._lock = build / LOCK
        usable = os.sched_getaffinity(0)
        self._measured = None if measured is None else usable & beside(measured)
        self._others = usable - (self._measured or set())
        self._free = threading.Semaphore(len(self._others))

    @contextmanager
    def one(self) -> Iterator[None]:
        """What this thread starts in here runs where nothing is measured."""
        if self._measured is None:
            yield
            return
        while not self._free.acquire(timeout=_PATIENCE_S):
            if (handle := self._unless_measuring()) is not None:
                try:
                    # What a thread starts inherits its cores.
                    os.sched_setaffinity(0, self._measured)
                    yield
                finally:
                    os.close(handle)
                return
        try:
            os.sched_setaffinity(0, self._others)
            yield
        finally:
            self._free.release()

    def _unless_measuring(self) -> int | None:
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle


def beside(core: int) -> set[int]:
    """A core and those that share its execution units: what runs on one slows the others."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        parts = [part.partition("-") for part in path.read_text().strip().split(",")]
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in parts]
    except (OSError, ValueError):
        return {core}
    return {core, *(number for numbers in ranges for number in numbers)}
