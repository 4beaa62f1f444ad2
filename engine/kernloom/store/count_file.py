"""The count file beside a SQLite store: how many trials the store and its log must hold.

SQLite takes a damaged write-ahead log for one whose last commits never happened, and says nothing.
So every commit appends the number of trials to a file, which is removed when the log is empty and a
backup has all trials. It is not synced: after a power failure it may say less than there is, never
more.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path

_LONGEST = 1 << 16
"""Bytes after which the file begins anew."""
_END = 1 << 12
"""Bytes at the end that are read: several processes append nearly in order."""


def count_file_of(store: Path) -> Path:
    return store.with_name(store.name + "-count")


class CountFile:
    """Lines of a number of trials and a checksum; whoever appends needs no lock."""

    def __init__(self, store: Path) -> None:
        self._path = count_file_of(store)

    def read(self, created: str) -> int:
        """The number of trials in the store that was created then; 0 if that is not known."""
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
        # Where it cannot be written, only the loss of a log goes unnoticed.
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
