"""The count file beside a SQLite store: the number of trials that the store and its log must hold.

SQLite treats a damaged write-ahead log as one whose last commits never happened, and reports
nothing. So every commit appends the number of trials to a file, which is removed when the log is
empty and a backup has all trials. It is not synced: after a power failure its number may be too
low, never too high.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path

_LONGEST = 1 << 16
"""Size in bytes at which the file is restarted."""
_END = 1 << 12
"""Bytes read at the end: several processes append in nearly sorted order."""


def count_file_of(store: Path) -> Path:
    return store.with_name(store.name + "-count")


class CountFile:
    """Lines with a number of trials and a checksum; appending needs no lock."""

    def __init__(self, store: Path) -> None:
        self._path = count_file_of(store)

    def exists(self) -> bool:
        return self._path.exists()

    def read(self, created: str) -> int:
        """The number of trials in the store created at that time; 0 if unknown."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
                lines = file.read().splitlines()
        except OSError:
            return 0
        numbers = (line.partition(b" ")[0] for line in lines)
        known = [int(number) for number in numbers if number.isdigit()]
        return max((n for n in known if _line(created, n).strip() in lines), default=0)

    def append(self, created: str, trials: int) -> None:
        # If it cannot be written, the only consequence is that the loss of a log goes unnoticed.
        with suppress(OSError):
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            handle = os.open(self._path, how, 0o644)
            try:
                if os.fstat(handle).st_size > _LONGEST:
                    os.ftruncate(handle, 0)
                os.write(handle, _line(created, trials))
            finally:
                os.close(handle)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def _line(created: str, trials: int) -> bytes:
    return b"%d %08x\n" % (trials, zlib.crc32(f"{created} {trials}".encode()))
