"""The window: shared memory through which inputs and outputs travel."""

from __future__ import annotations

import contextlib
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
        self.descriptor = above_stdio(os.memfd_create("kernloom-window", os.MFD_CLOEXEC))
        self._close = weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, nbytes)
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
