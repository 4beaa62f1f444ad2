"""Finds and kills processes that a kernel left behind by killing its supervisor.

A process belongs to a session if any of these matches:

- a hard limit, RLIMIT_LOCKS, that the supervisor sets to the session's number. Linux inherits it at
  every fork and exec and enforces it nowhere; only a privileged process can raise it.
- its parent, in case it lowered the limit: the engine is a subreaper, so orphans become its
  children, and processes that the engine started itself have the engine's own limit.
- its environment, where the system refuses the limit.

Processes that compilers and other tools leave running are not touched: they have the engine's
limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

MARKER = "KERNLOOM_SESSION"
"""Environment variable with the session's number for its supervisor, in hexadecimal."""
LIMIT = 10
"""RLIMIT_LOCKS, which the module `resource` does not name."""
KILL_SECONDS = 5.0
_CHILD_SUBREAPER = 36
_lock = threading.Lock()
"""Held while a supervisor is started or reaped, so that it is never mistaken for an orphan."""
_supervisors: set[int] = set()


def new_mark() -> str:
    """A session's number; of constant length, because the environment's size moves the stack."""
    return f"{secrets.randbits(61) | 1 << 61:016x}"


def set_limit(mark: str) -> None:
    """Mark this process and all its future descendants."""
    number = int(mark, 16)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(LIMIT, (number, number))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def start(spawn: Callable[[], int]) -> int:
    """Start a supervisor; returns its process id."""
    # Set every time, because forks do not inherit it.
    _libc().prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    with _lock:
        pid = spawn()
        _supervisors.add(pid)
    return pid


def reap(pid: int) -> int:
    """Wait for a supervisor to end; returns its wait status."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with _lock:
        _supervisors.discard(pid)
        return os.waitpid(pid, 0)[1]


def kill_leftovers(mark: str) -> None:
    """Kill the processes of a session whose supervisor is gone."""
    deadline = time.monotonic() + KILL_SECONDS
    while _kill_found(mark) and time.monotonic() < deadline:
        time.sleep(0.001)


@dataclass(frozen=True)
class _Found:
    pid: int
    parent: int
    is_zombie: bool


def _kill_found(mark: str) -> bool:
    """Kill, or reap, every process found now; returns whether there were any."""
    with _lock:
        found = [process for process in _processes() if _is_left_over(process, mark)]
        for process in found:
            if process.is_zombie:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
            else:
                _kill(process.pid)
    return bool(found)


def _is_left_over(process: _Found, mark: str) -> bool:
    is_child = process.parent == os.getpid()
    if process.pid in _supervisors or process.pid == os.getpid():
        return False
    if process.is_zombie and not is_child:
        # Dead, and reaped by another parent.
        return False
    limit = _limit_of(process.pid)
    if limit == int(mark, 16) or (is_child and limit not in (None, _limit_of(0))):
        return True
    return f"{MARKER}={mark}".encode() in _environment_of(process.pid)


def _kill(pid: int) -> None:
    """Kill a process and its group in one call, so that it cannot escape by forking."""
    with contextlib.suppress(OSError):
        group = os.getpgid(pid)
        if group == pid or os.getsid(pid) != os.getsid(0):
            os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[_Found]:
    with os.scandir("/proc") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in numbers:
        # The second field is a name in parentheses that may contain any character.
        state, parent, *_ = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split() or (b"X", b"0")
        yield _Found(pid, int(parent), state in (b"Z", b"X"))


def _limit_of(pid: int) -> int | None:
    """The hard limit of a process; None if it is dead or belongs to another user."""
    try:
        return resource.prlimit(pid, LIMIT)[1]
    except OSError:
        return None


def _environment_of(pid: int) -> bytes:
    """The initial environment of a process; empty if it is dead or belongs to another user."""
    return _read(f"/proc/{pid}/environ")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (hundreds at a time)
            return file.read()
    except OSError:
        return b""
