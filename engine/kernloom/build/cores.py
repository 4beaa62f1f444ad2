"""Core assignment for compilers while kernels are measured.

The measured core belongs to the holder of a lock: the engine while it measures, a compiler
otherwise. So no core is idle, and nothing is compiled on a core that is being measured.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu")
LOCK = ".measuring"
_PATIENCE_S = 0.01


class MeasuredCore:
    """The engine's side: the core it measures on while SCons builds on the others."""

    def __init__(self, number: int, build: Path) -> None:
        self.number = number
        self._lock = build / LOCK

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no compiler uses the core, and reserve it."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


class Cores:
    """The compilers' side, with as many jobs as cores."""

    def __init__(self, measured: int | None, build: Path) -> None:
        self._lock = build / LOCK
        usable = os.sched_getaffinity(0)
        self._measured = None if measured is None else usable & smt_siblings(measured)
        self._others = usable - (self._measured or set())
        self._free = threading.Semaphore(len(self._others))

    @contextmanager
    def for_child(self) -> Iterator[None]:
        """Processes that this thread starts in this context run on cores without measurements."""
        if self._measured is None:
            yield
            return
        while not self._free.acquire(timeout=_PATIENCE_S):
            if (handle := self._unless_measuring()) is not None:
                try:
                    # Child processes inherit the thread's affinity.
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


def smt_siblings(core: int) -> set[int]:
    """A core and its SMT siblings, which share execution units and slow each other down."""
    try:
        return {core, *_listed(SYSFS / f"cpu{core}/topology/thread_siblings_list")}
    except (OSError, ValueError):
        return {core}


def _listed(path: Path) -> set[int]:
    """The numbers in a list such as `0-1,4`."""
    parts = [part.partition("-") for part in _said(path).split(",")]
    return {n for first, _, last in parts for n in range(int(first), int(last or first) + 1)}


def _said(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
