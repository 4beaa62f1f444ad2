"""Machine-wide lock for measuring: never two measurements on a machine at once.

The name of an abstract socket is the lock: it belongs to the machine, needs no file that every user
could write, and is free again the moment its holder ends in any way.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAME = "\0kernloom-measuring"


@contextmanager
def alone(waiting: Callable[[], None] = lambda: None, name: str = NAME) -> Iterator[None]:
    """Wait for the lock and hold it in the block; `waiting` is called if it is taken."""
    with _bound(name, waiting):
        yield


def _bound(name: str, waiting: Callable[[], None]) -> socket.socket:
    while True:
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mine.bind(name)
            mine.listen(socket.SOMAXCONN)
            return mine
        except OSError as error:
            mine.close()
            if error.errno != errno.EADDRINUSE:
                raise
        waiting()
        _wait_for_end(name)


def _wait_for_end(name: str) -> None:
    """A connection to the holder, which never sends anything, closes when the holder ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(name)
            other.recv(1)
        except ConnectionError:
            # Gone, or not listening yet: the next bind decides.
            return
