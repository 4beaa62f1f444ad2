"""The count file beside a SQLite store: how many trials the store and its log must hold.

SQLite takes a write-ahead log that was cut short for one whose last commits never happened, and
says nothing. So the number of trials is noted after every commit, in a file that lives as long as
the log does. It is not synced: after a power failure it may say less than there is, never more.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernloom.base.sealed import seal, unseal

_SIZE = 4096


def count_file_of(store: Path) -> Path:
    return store.with_name(store.name + "-count")


class CountFile:
    """How many trials were stored, as far as is known outside of the store."""

    def __init__(self, store: Path) -> None:
        self._path = count_file_of(store)
        self._handle: int | None = None
        """Kept open between the trials of a run."""
        self._written = b""

    def read(self, created: str) -> int:
        """The number of trials in the store that was created then; 0 if that is not known."""
        try:
            return self._number(self._path.read_bytes(), created)
        except OSError:
            return 0

    def raise_to(self, created: str, trials: int) -> None:
        """Note a number, unless another process has noted a higher one."""
        # Where it cannot be written, a loss goes unnoticed, and nothing else.
        with suppress(OSError), self._locked() as handle:
            there = os.pread(handle, _SIZE, 0)
            # Most often nobody else has written since.
            if there == self._written or self._number(there, created) < trials:
                self._write(handle, created, trials)

    def set_to(self, created: str, trials: int) -> None:
        """Note a number, whatever was noted before."""
        with suppress(OSError), self._locked() as handle:
            self._write(handle, created, trials)

    def remove(self) -> None:
        self.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, with no other process writing it."""
        if self._handle is not None and os.fstat(self._handle).st_nlink == 0:
            self.close()  # another process took it for one that is not needed any more
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            yield self._handle
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _number(self, text: bytes, created: str) -> int:
        try:
            # A write that was interrupted leaves what does not match its hash.
            noted = unseal(text.rstrip(), self._path.name)
        except ValueError:
            return 0
        return int(noted["trials"]) if noted["created"] == created else 0

    def _write(self, handle: int, created: str, trials: int) -> None:
        text = seal({"created": created, "trials": trials}, self._path.name)
        self._written = f"{text:<200}\n".encode()
        os.pwrite(handle, self._written, 0)
