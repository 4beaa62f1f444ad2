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
        self._held: set[str] = set()

    def take(self, name: str) -> bool:
        try:
            self._lock(name, fcntl.F_WRLCK, fcntl.F_OFD_SETLK)
        except BlockingIOError:
            return False
        self._held.add(name)
        return True

    def wait(self, name: str) -> None:
        self._lock(name, fcntl.F_WRLCK, fcntl.F_OFD_SETLKW)
        self._held.add(name)

    def release(self, name: str) -> None:
        if name in self._held:
            self._held.remove(name)
            self._lock(name, fcntl.F_UNLCK, fcntl.F_OFD_SETLK)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._held.clear()

    def _lock(self, name: str, kind: int, how: int) -> None:
        request = struct.pack(_FLOCK, kind, os.SEEK_SET, _number(name) >> 1, 1, 0)
        try:
            # The lock belongs to the open file, not the process: closing another descriptor keeps
            # it.
            fcntl.fcntl(self._opened(), how, request)
        except BlockingIOError:
            raise
        except OSError:
            # No locks, no space or no permission: storing a trial reports the problem.
            return

    def _opened(self) -> int:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._descriptor


class ServerClaims:
    """Advisory locks of a PostgreSQL server, on their own connection.

    If the server cannot be reached, every claim succeeds: the store reports the problem.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    def take(self, name: str) -> bool:
        return self._ask("SELECT pg_try_advisory_lock(:number) AS done", name)

    def wait(self, name: str) -> None:
        # Polling, because Ctrl-C could not interrupt a blocking statement.
        pause = _FIRST_PAUSE_S
        while not self.take(name):
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_S)

    def release(self, name: str) -> None:
        self._ask("SELECT pg_advisory_unlock(:number) AS done", name)

    def close(self) -> None:
        if self._connection is not None:
            # The server drops the locks of a closed connection.
            self._connection.close()
        self._connection = None

    def _ask(self, statement: str, name: str) -> bool:
        try:
            if self._connection is None:
                self._connection = self._connect()
            values = {"number": _number(name) - (1 << 63)}
            (row,) = self._connection.rows(statement, values)
            # The lock belongs to the connection, not to the transaction.
            self._connection.commit()
        except Exception:
            self._connection = None
            return True
        return bool(row["done"])


def _number(name: str) -> int:
    """64 bits: a collision of names is no more likely than one of trial ids."""
    return int.from_bytes(hashlib.sha256(f"kernloom {name}".encode()).digest()[:8], "big")
