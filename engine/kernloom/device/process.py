"""The runner's process: fast start, certain end, and the tail of its output kept.

Every runner, emulator and worker is a supervisor with one child
(native/include/kernloom/supervisor.h): the supervisor kills all processes that a kernel started
before it ends itself. If the supervisor is killed, the engine does so (leftovers.py).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence

from kernloom.base.errors import UnavailableError
from kernloom.device import leftovers
from kernloom.device.leftovers import MARKER, kill_leftovers, new_mark

TAIL_BYTES = 8192
END_SECONDS = 5.0
"""Seconds a supervisor may take to end everything before it is killed itself."""
_RESET = [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ]


def above_stdio(descriptor: int) -> int:
    """Duplicate a descriptor to a number above the child's stdin, stdout and stderr."""
    if descriptor > 2:
        return descriptor
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _environment() -> dict[str, str]:
    """Minimal and constant: its size moves a process's stack, which affects a kernel's speed.

    The loader's search path is passed on, because the libraries found there are in the artifacts'
    keys; relative folders are dropped, because they depend on the current folder.
    """
    kept = {"LC_ALL": "C"}
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if search := ":".join(folder for folder in folders if folder.startswith("/")):
        kept["LD_LIBRARY_PATH"] = search
    return kept


class Process:
    """A supervisor in its own process group; its output and its child's go to a memory file.

    It ends with its child's status, and only when no process that the child started is left.
    """

    def __init__(
        self,
        command: Sequence[str],
        inherited: Sequence[int],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._parent = os.getpid()
        self._mark = new_mark()
        self._output = above_stdio(os.memfd_create("kernloom-output", os.MFD_CLOEXEC))
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, self._output, 1),
            (os.POSIX_SPAWN_DUP2, self._output, 2),
            # Onto itself: clears close-on-exec in the child only.
            *((os.POSIX_SPAWN_DUP2, descriptor, descriptor) for descriptor in inherited),
        ]
        try:
            # Unlike fork, the cost does not depend on the engine's size.
            self.pid = leftovers.start(
                lambda: os.posix_spawn(
                    command[0],
                    list(command),
                    _environment() | dict(environment or {}) | {MARKER: self._mark},
                    file_actions=actions,
                    setpgroup=0,
                    setsigmask=[],
                    setsigdef=_RESET,
                )
            )
        except OSError as error:
            os.close(self._output)
            raise UnavailableError(
                f"{command[0]} cannot be started: {error.strerror}",
                hint="Build it with `kernloom build`.",
            ) from error

    def wait(self, seconds: float) -> bool:
        """Wait for the process to end by itself; returns whether it has."""
        if self.returncode is not None:
            return True
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            # Other code in this process waited for any child.
            return True
        try:
            return _readable(descriptor, time.monotonic() + seconds)
        finally:
            os.close(descriptor)

    def end(self) -> int:
        """Kill the process and all it started, and reap it; returns its real exit status."""
        if self._parent != os.getpid():
            # A fork of the engine must not end the engine's runners when it exits.
            return -signal.SIGKILL
        if self.returncode is None:
            in_time = self.wait(0) or self._ask_to_end()
            if not in_time:
                # Before reaping: until then the process id cannot be reused.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._reap()
            # A supervisor that was killed, perhaps by the kernel under test, has ended nothing.
            if self.returncode == -signal.SIGKILL or not in_time:
                kill_leftovers(self._mark)
        return self.returncode or 0

    def _ask_to_end(self) -> bool:
        """Ask the supervisor to end everything; returns whether it did so in time."""
        # It may be stopped.
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)
        return self.wait(END_SECONDS)

    def _reap(self) -> None:
        try:
            self.returncode = os.waitstatus_to_exitcode(leftovers.reap(self.pid))
        except ChildProcessError:
            # Other code in this process waited for any child.
            self.returncode = -signal.SIGKILL

    def tail(self) -> str:
        """The end of the process's output."""
        if self._output < 0:
            return ""
        size = os.fstat(self._output).st_size
        data = os.pread(self._output, TAIL_BYTES, max(0, size - TAIL_BYTES))
        return data.decode(errors="replace")

    def release(self) -> None:
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


def _readable(descriptor: int, deadline: float) -> bool:
    """Whether a descriptor becomes readable before the deadline."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        remaining = max(0.0, deadline - time.monotonic())
        # poll takes its timeout as an int of milliseconds.
        if poll.poll(min(remaining * 1000, 1e9)):
            return True
        if not remaining:
            return False


def ending(returncode: int) -> str:
    """An exit status in words: `SIGSEGV (Segmentation fault)` or `exit code 3`."""
    from kernloom.device.messages import Exit

    if returncode == Exit.LEFTOVERS:
        return "exit code 0, leaving processes behind,"
    if returncode >= 0:
        return f"exit code {returncode}"
    number = -returncode
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    about = signal.strsignal(number) or name
    if number == signal.SIGKILL:
        about += " from outside, perhaps for lack of memory"
    return f"{name} ({about})"
