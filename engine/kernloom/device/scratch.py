"""Scratch folders for kernels: empty at the start of a session and removed at its end."""

from __future__ import annotations

import os
import stat
import tempfile
import weakref
from pathlib import Path

from kernloom.base.errors import UnavailableError
from kernloom.base.temporary import process_folder, remove_folder
from kernloom.device.process import above_stdio


class Scratch:
    """The current folder of one session's processes.

    It is passed as an open descriptor, so that no user's path becomes part of a runner's arguments,
    whose size moves its stack.
    """

    def __init__(self, parent: Path | None = None, free: list[Scratch] | None = None) -> None:
        """A folder below `parent`, or in the system's temporary folder; `free` is the pool it
        returns to if it can be reused."""
        self._engine = os.getpid()
        self._free = free
        try:
            if parent is not None:
                parent.mkdir(parents=True, exist_ok=True)
            self.path = tempfile.mkdtemp(prefix="session-", dir=parent or process_folder())
            self.descriptor = above_stdio(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            raise UnavailableError(
                f"no folder for kernels to run in can be made below "
                f"{parent or tempfile.gettempdir()}: {error.strerror or error}"
            ) from None

    @property
    def untouched(self) -> bool:
        """Whether it is still as it was created."""
        try:
            status = os.fstat(self.descriptor)
            as_made = status.st_mode == stat.S_IFDIR | stat.S_IRWXU and status.st_nlink > 0
            return as_made and not os.listdir(self.descriptor)  # noqa: PTH208 (no path)
        except OSError:
            return False

    def give_back(self) -> None:
        """Return it to the pool if it can be reused, else remove it."""
        if self._free is not None and self.untouched:
            self._free.append(self)
        else:
            self.remove()

    def remove(self) -> None:
        """Remove the folder and everything that kernels left in it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        # A fork of the engine must not remove the engine's folders when it exits.
        if self._engine != os.getpid():
            return
        try:
            os.rmdir(self.path)  # noqa: PTH106 (most are empty)
        except FileNotFoundError:
            return
        except OSError:
            # If anything remains, the next engine removes it with the parent folder.
            remove_folder(Path(self.path))


class ScratchPool:
    """Folders that no kernel has touched: reuse costs a tenth of creating one."""

    def __init__(self, parent: Path | None = None) -> None:
        self.parent = parent
        """Their parent folder; default: the system's temporary folder."""
        self._free: list[Scratch] = []
        weakref.finalize(self, _remove_all, self._free)

    def take(self) -> Scratch:
        while self._free:
            scratch = self._free.pop()
            # Another process may have cleaned up meanwhile.
            if scratch.untouched:
                return scratch
            scratch.remove()
        return Scratch(self.parent, self._free)


def _remove_all(folders: list[Scratch]) -> None:
    for scratch in folders:
        scratch.remove()
