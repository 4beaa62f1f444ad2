"""The count file beside a SQLite store: how many trials the store and its log must hold.

SQLite takes a write-ahead log that was cut short for one whose last commits never happened, and
says nothing. So the number of trials is noted after every commit, in a file that lives as long as
the log does. It is not synced: after a power failure it may say less than there is, never more.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from kernloom.sealed import seal, unseal

_SIZE = 4096


def count_file_of(store: Path) -> Path:
    return store.with_name(store.name + "-count")


class CountFile:
    """How many trials were stored, as far as is known outside of the store."""

    def __init__(self, store: Path) -> None:
        self._path = count_file_of(store)

    def read(self, created: str) -> int:
        """The number of trials in the store that was created then; 0 if that is not known."""
        try:
            handle = os.open(self._path, os.O_RDONLY)
        except OSError:
            return 0
        try:
            return self._read(handle, created)
        finally:
            os.close(handle)

    def raise_to(self, created: str, trials: int) -> None:
        """Note a number, unless another process has noted a higher one."""
        # Where it cannot be written, a loss goes unnoticed, and nothing else.
        with suppress(OSError):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if self._read(handle, created) < trials:
                    self._write(handle, created, trials)
            finally:
                os.close(handle)

    def set_to(self, created: str, trials: int) -> None:
        """Note a number, whatever was noted before."""
        with suppress(OSError):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                self._write(handle, created, trials)
            finally:
                os.close(handle)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _read(self, handle: int, created: str) -> int:
        try:
            # A write that was interrupted leaves what does not match its hash.
            noted = unseal(os.pread(handle, _SIZE, 0).rstrip(), self._path.name)
        except ValueError:
            return 0
        return int(noted["trials"]) if noted["created"] == created else 0

    def _write(self, handle: int, created: str, trials: int) -> None:
        text = seal({"created": created, "trials": trials}, self._path.name)
        os.pwrite(handle, f"{text:<200}\n".encode(), 0)
