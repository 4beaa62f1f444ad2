"""The window: shared memory for inputs and outputs."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref

from kernloom.device.process import above_stdio

WINDOW_BYTES = 64 << 20
"""Sparse: only used pages take memory. Larger transfers are split."""


class Window:
    """A memory file mapped by the engine and one runner."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.descriptor = above_stdio(os.memfd_create("kernloom-window", flags))
        self._close = weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, nbytes)
        # If a kernel could shrink it, the engine would die of SIGBUS.
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self.memory = mmap.mmap(self.descriptor, nbytes)

    def discard(self) -> None:
        """Release it now: a failed session may live long, referenced by its error."""
        self._close()
        # Existing views keep the memory mapped.
        with contextlib.suppress(BufferError):
            self.memory.close()


class WindowPool:
    """Free windows; their pages are mapped already, which saves page faults."""

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
