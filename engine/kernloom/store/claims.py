"""Claims: while one engine runs a trial, other engines that want it take another trial.

A claim lasts until it is released or its holder ends in any way: the system drops the locks of a
killed process, and a server those of a lost connection.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kernloom.store.database import Connection

_FLOCK = "hhlli4x"
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 0.5


class Claims(Protocol):
    """The claims of this engine; each engine has its own."""

    def take(self, name: str) -> bool:
        """Claim a name if nobody else holds it; returns whether it was claimed."""

    def wait(self, name: str) -> None:
        """Claim a name, waiting until nobody else holds it."""

    def release(self, name: str) -> None: ...

    def close(self) -> None:
        """Release everything."""


class FileClaims:
    """Claims in one file: a lock on the byte that the name hashes to, so nothing needs cleaning up.

    Where a file cannot be locked, every claim succeeds: at worst work is done twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, name: str) -> bool:
        return self._lock(name, fcntl.F_WRLCK, fcntl.F_OFD_SETLK)

    def wait(self, name: str) -> None:
        self._lock(name, fcntl.F_WRLCK, fcntl.F_OFD_SETLKW)

    def release(self, name: str) -> None:
        self._lock(name, fcntl.F_UNLCK, fcntl.F_OFD_SETLK)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _lock(self, name: str, kind: int, how: int) -> bool:
        try:
            lock(self._opened(), kind, how, _number(name) >> 1, 1)
        except BlockingIOError:
            return False
        except OSError:
            # No locks, no space or no permission: storing a trial reports the problem.
            pass
        return True

    def _opened(self) -> int:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._descriptor


def lock(descriptor: int, kind: int, how: int, start: int, length: int) -> None:
    """Lock bytes of an open file until it is closed, whoever else in this process opens and closes
    the same file: the lock belongs to the open file, not the process."""
    fcntl.fcntl(descriptor, how, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))


class ServerClaims:
    """Advisory locks of a PostgreSQL server, on their own connection.

    If the server cannot be reached, every claim succeeds: the store reports the problem.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    def take(self, name: str) -> bool:
        return self._ask("SELECT pg_try_advisory_lock(?) AS done", name)

    def wait(self, name: str) -> None:
        # Polling, because Ctrl-C could not interrupt a blocking statement.
        pause = _FIRST_PAUSE_S
        while not self.take(name):
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_S)

    def release(self, name: str) -> None:
        self._ask("SELECT pg_advisory_unlock(?) AS done", name)

    def close(self) -> None:
        if self._connection is not None:
            # The server drops the locks of a closed connection.
            self._connection.close()
        self._connection = None

    def _ask(self, statement: str, name: str) -> bool:
        try:
            if self._connection is None:
                self._connection = self._connect()
            (row,) = self._connection.rows(statement, [_number(name) - (1 << 63)])
            # The lock belongs to the connection, not to the transaction.
            self._connection.commit()
        except Exception:
            self._connection = None
            return True
        return bool(row["done"])


def _number(name: str) -> int:
    """64 bits: a collision of names is no more likely than one of trial ids."""
    return int.from_bytes(hashlib.sha256(f"kernloom {name}".encode()).digest()[:8], "big")
