"""The runner as a process: started fast, ended for certain, its last words kept."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from kernloom.errors import UnavailableError

TAIL_BYTES = 8192
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


def _limit_data(pid: int, nbytes: int) -> None:
    """Only what a process can write and shares with nobody counts, not addresses it sets aside."""
    import resource

    _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        nbytes = min(nbytes, hard)
    resource.prlimit(pid, resource.RLIMIT_DATA, (nbytes, nbytes))


class Process:
    """A child in a process group of its own, whose output goes to a file in memory."""

    def __init__(
        self,
        command: Sequence[str],
        inherited: Sequence[int],
        environment: Mapping[str, str] | None = None,
        data_limit: int = 0,
    ) -> None:
        """`data_limit`: bytes of memory of its own that it may have; 0: any number."""
        self.returncode: int | None = None
        self._parent = os.getpid()
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
            self.pid = os.posix_spawn(
                command[0],
                list(command),
                _environment() | dict(environment or {}),
                file_actions=actions,
                setpgroup=0,
                setsigmask=[],
                setsigdef=_RESET,
            )
        except OSError as error:
            os.close(self._output)
            raise UnavailableError(
                f"{command[0]} cannot be started: {error.strerror}",
                hint="Build it with `kernloom build`.",
            ) from error
        if data_limit:
            _limit_data(self.pid, data_limit)

    def kill(self) -> int:
        """End the process and all it started, and reap it; the status it really ended with."""
        if self._parent != os.getpid():
            # A fork of the engine that ends must not take the engine's runners with it.
            return -signal.SIGKILL
        if self.returncode is None:
            # Before the reaping: until then nobody else can have this number.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._reap()
        return self.returncode or 0

    def _reap(self) -> None:
        try:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
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


def ending(returncode: int) -> str:
    """How a process ended, for people: `SIGSEGV (Segmentation fault)` or `exit code 3`."""
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
