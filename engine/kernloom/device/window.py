"""The window: shared memory through which inputs and outputs travel."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref

from kernloom.device.process import above_stdio

WINDOW_BYTES = 64 << 20
"""Sparse: only what is used takes memory. Larger transfers go in pieces."""


class Window:
    """A file in memory that the engine and one runner both map."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.descriptor = above_stdio(os.memfd_create("kernloom-window", flags))
        self._close = weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, nbytes)
        # A kernel that cut it short would end the engine with SIGBUS.
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self.memory = mmap.mmap(self.descriptor, nbytes)

    def discard(self) -> None:
        """Let go of it now: a session that failed may be remembered for long, by its error."""
        self._close()
        # Whoever still looks at what is in it keeps the memory.
        with contextlib.suppress(BufferError):
            self.memory.close()


class WindowPool:
    """Windows not in use; their pages are mapped already, which saves a fault for each."""

    def __init__(self, nbytes: int = WINDOW_BYTES) -> None:
        self._nbytes = nbytes
        self._free: list[Window] = []

    def take(self) -> Window:
        try:
            return self._free.pop()
        except IndexError:
            return Window(self._nbytes)

    def give_back(self, window: Window) -> None:
        self._free.append(window)
