"""Limits the number of simultaneous sessions of a target: further ones wait until one closes.

Each slot is a locked file, so that the limit holds between processes, and a killed process frees
its slot.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernloom.base.errors import DeviceError


class SessionSlots:
    """The session slots of a target; 0: unlimited."""

    def __init__(self, sessions: int, folder: Path) -> None:
        self._sessions = sessions
        self._folder = folder
        self._turns = 0
        self._holders: list[int] = []
        """The thread that holds each slot of this process."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold a slot for the duration of the block; waits until one is free."""
        if not self._sessions:
            yield
            return
        me = threading.get_ident()
        if self._holders.count(me) >= self._sessions:
            # Only this thread could free a slot.
            raise DeviceError(
                f"{self._sessions} sessions are open already, and the target has no more "
                "(target.sessions)",
                status="refused",
                code="sessions",
            )
        slot = self._take()
        self._holders.append(me)
        try:
            yield
        finally:
            self._holders.remove(me)
            os.close(slot)

    def _take(self) -> int:
        """Lock a slot's file; the descriptor is not inherited by child processes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for number in range(self._sessions):
            slot = self._open(number)
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return slot
            except OSError:
                os.close(slot)
        # All are taken: waiting processes are spread over them.
        self._turns += 1
        slot = self._open((os.getpid() + self._turns) % self._sessions)
        try:
            fcntl.flock(slot, fcntl.LOCK_EX)
        except BaseException:
            os.close(slot)
            raise
        return slot

    def _open(self, number: int) -> int:
        return os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT, 0o644)
