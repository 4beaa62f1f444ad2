"""At most so many sessions of a target at once: whoever comes next waits until one closes.

The places are locked files, so that the bound holds between processes, and one that is killed
leaves its place to the next.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernloom.base.errors import DeviceError


class SessionPlaces:
    """As many places as a target has sessions; 0: any number."""

    def __init__(self, sessions: int, folder: Path) -> None:
        self._sessions = sessions
        self._folder = folder
        self._turns = 0
        self._holders: list[int] = []
        """The thread of each place taken here."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A place, waited for if need be, for as long as the block lasts."""
        if not self._sessions:
            yield
            return
        me = threading.get_ident()
        if self._holders.count(me) >= self._sessions:
            # Nobody else could ever make room.
            raise DeviceError(
                f"{self._sessions} sessions are open already, and the target has no more "
                "(target.sessions)",
                status="refused",
                code="sessions",
            )
        place = self._take()
        self._holders.append(me)
        try:
            yield
        finally:
            self._holders.remove(me)
            os.close(place)

    def _take(self) -> int:
        """A locked file; not inherited by what the engine starts."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for number in range(self._sessions):
            place = self._open(number)
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return place
            except OSError:
                os.close(place)
        # All are taken: those who wait are spread over them.
        self._turns += 1
        place = self._open((os.getpid() + self._turns) % self._sessions)
        try:
            fcntl.flock(place, fcntl.LOCK_EX)
        except BaseException:
            os.close(place)
            raise
        return place

    def _open(self, number: int) -> int:
        return os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT, 0o644)
