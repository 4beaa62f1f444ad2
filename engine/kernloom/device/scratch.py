"""Where kernels run: a folder that is empty at the start of a session and gone at its end."""

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

    It is handed over as an open descriptor, so that no path of the user's becomes part of a
    runner's arguments, the size of which moves its stack.
    """

    def __init__(self, parent: Path | None = None, free: list[Scratch] | None = None) -> None:
        """A folder below `parent`, or among the system's temporary files; `free` is where it goes
        when it can be used again."""
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
        """Whether it is still as it was made."""
        try:
            status = os.fstat(self.descriptor)
            as_made = status.st_mode == stat.S_IFDIR | stat.S_IRWXU and status.st_nlink > 0
            return as_made and not os.listdir(self.descriptor)  # noqa: PTH208 (no path)
        except OSError:
            return False

    def give_back(self) -> None:
        """Have it used again if it can be, else removed."""
        if self._free is not None and self.untouched:
            self._free.append(self)
        else:
            self.remove()

    def remove(self) -> None:
        """Remove the folder with all that kernels have left in it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        # A fork of the engine that ends leaves the engine's sessions alone.
        if self._engine != os.getpid():
            return
        try:
            os.rmdir(self.path)  # noqa: PTH106 (most are empty)
        except FileNotFoundError:
            return
        except OSError:
            # What is left nevertheless, the next engine sweeps with the folder above.
            remove_folder(Path(self.path))


class ScratchPool:
    """Folders that no kernel has touched: using them again costs a tenth of making others."""

    def __init__(self, parent: Path | None = None) -> None:
        self.parent = parent
        """Where they are; by default among the system's temporary files."""
        self._free: list[Scratch] = []
        weakref.finalize(self, _remove_all, self._free)

    def take(self) -> Scratch:
        while self._free:
            scratch = self._free.pop()
            # Meanwhile somebody may have cleaned up.
            if scratch.untouched:
                return scratch
            scratch.remove()
        return Scratch(self.parent, self._free)


def _remove_all(folders: list[Scratch]) -> None:
    for scratch in folders:
        scratch.remove()
