"""The runner as a process: started fast, ended for certain, its last words kept.

Every runner, emulator and worker is a supervisor with one child (native/include/kernloom/
supervisor.h): the supervisor kills whatever a kernel has started before it ends itself. Should
the supervisor be killed, the engine does so (leftovers.py).
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
"""How long a supervisor may take to end everything before it is killed itself."""
_RESET = [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ]


def above_stdio(descriptor: int) -> int:
    """The same file under a number that the child's stdin, stdout and stderr do not take."""
    if descriptor > 2:
        return descriptor
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _environment() -> dict[str, str]:
    """Small and fixed: its size moves a process's stack, and with it a kernel's speed.

    The loader's search path is passed on, since what it finds there is in the artifacts' keys; a
    relative folder is not, since it would depend on where the command was started.
    """
    kept = {"LC_ALL": "C"}
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if search := ":".join(folder for folder in folders if folder.startswith("/")):
        kept["LD_LIBRARY_PATH"] = search
    return kept


class Process:
    """A supervisor in a process group of its own; its and its child's output go to a memory file.

    It ends the way its child ends, and only when nothing of what the child started is left.
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
            # Unlike fork this costs the same however large the engine has grown.
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
        """Wait for the process to end by itself; whether it has."""
        if self.returncode is not None:
            return True
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            # Somebody in this process waited for any child.
            return True
        try:
            return _readable(descriptor, time.monotonic() + seconds)
        finally:
            os.close(descriptor)

    def end(self) -> int:
        """End the process and all it started, and reap it; the status it really ended with."""
        if self._parent != os.getpid():
            # A fork of the engine that ends must not take the engine's runners with it.
            return -signal.SIGKILL
        if self.returncode is None:
            in_time = self.wait(0) or self._ask_to_end()
            if not in_time:
                # Before the reaping: until then nobody else can have this number.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._reap()
            # A supervisor that was killed, perhaps by the kernel itself, has ended nothing.
            if self.returncode == -signal.SIGKILL or not in_time:
                kill_leftovers(self._mark)
        return self.returncode or 0

    def _ask_to_end(self) -> bool:
        """Have the supervisor end everything; whether it did so in time."""
        # It may have been stopped, too.
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)
        return self.wait(END_SECONDS)

    def _reap(self) -> None:
        try:
            self.returncode = os.waitstatus_to_exitcode(leftovers.reap(self.pid))
        except ChildProcessError:
            # Somebody in this process waited for any child.
            self.returncode = -signal.SIGKILL

    def tail(self) -> str:
        """The end of what the process printed."""
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
        # No system waits longer than fits an int of milliseconds.
        if poll.poll(min(remaining * 1000, 1e9)):
            return True
        if not remaining:
            return False


def ending(returncode: int) -> str:
    """How a process ended, for people: `SIGSEGV (Segmentation fault)` or `exit code 3`."""
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
