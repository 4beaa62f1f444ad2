"""A supervisor for Python workers, which must run where there is no compiler.

It behaves like native/include/kernloom/supervisor.h; tests/device/test_supervisors.py runs the same
table of workers under both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from kernloom.device.leftovers import MARKER, set_limit
from kernloom.device.messages import Exit

FAILED = 110
"""Exit code of a supervisor that cannot start its worker."""
_PDEATHSIG, _SET_NAME, _CHILD_SUBREAPER = 1, 15, 36
_PTRACE_DETACH = 17
_AWAITED = {signal.SIGCHLD, signal.SIGTERM}
_PAUSE_S = 0.005
_C = ctypes.CDLL(None)
_C.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_C.ptrace.restype = ctypes.c_long


def supervise() -> None:
    """Fork: the child returns and works; the parent ends with the child's status once no process is
    left."""
    engine = os.getppid()
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _C.prctl(_CHILD_SUBREAPER, 1)
    _C.prctl(_PDEATHSIG, signal.SIGTERM)
    if mark := os.environ.get(MARKER):
        set_limit(mark)
    supervisor = os.getpid()
    try:
        worker = os.fork()
    except OSError as error:
        print(f"supervisor: fork: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(FAILED)
    if worker == 0:
        os.setpgid(0, 0)
        _C.prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(FAILED)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    _C.prctl(_SET_NAME, b"kl-supervisor")
    _wait(worker, engine)
    status, leftovers = _end_all(worker)
    _end_like(status, leftovers)


def _wait(worker: int, engine: int) -> None:
    """Return when the worker has ended, or when the engine asks for the end or has died."""
    while not _ended(worker) and os.getppid() == engine:
        info = signal.sigwaitinfo(_AWAITED)
        # Kernels can send SIGTERM too: only the engine's counts.
        if info.si_signo == signal.SIGTERM and info.si_pid == engine:
            return


def _ended(worker: int) -> bool:
    """Whether the worker has ended; reaps orphans and detaches traced processes."""
    events = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    while True:
        try:
            found = os.waitid(os.P_PID, worker, events) or os.waitid(os.P_ALL, 0, events)
        except ChildProcessError:
            return True
        if found is None:
            return False
        running = found.si_code in (os.CLD_TRAPPED, os.CLD_STOPPED)
        if found.si_pid == worker and not running:
            return True
        _, status = os.waitpid(found.si_pid, os.WUNTRACED)
        # The process called PTRACE_TRACEME; without a detach its next signal would stop it forever.
        if found.si_code == os.CLD_TRAPPED:
            _C.ptrace(_PTRACE_DETACH, found.si_pid, None, os.WSTOPSIG(status))


def _end_all(worker: int) -> tuple[int, bool]:
    """Kill the worker and its descendants; returns its wait status and whether there were any."""
    _kill(worker, worker)
    status: int | None = None
    leftovers = False
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status or 0, leftovers
        if pid == worker:
            status = found
        elif pid and os.WIFSIGNALED(found) and os.WTERMSIG(found) == signal.SIGKILL:
            # In the worker's process group, and therefore killed with it.
            leftovers = True
        if pid == 0:
            if status is not None:
                leftovers = True
                for child in _children():
                    _kill(child, worker)
            signal.sigtimedwait(_AWAITED, _PAUSE_S)


def _kill(child: int, worker: int) -> None:
    with contextlib.suppress(OSError):
        group = os.getpgid(child)
        if group in (child, worker) or os.getsid(child) != os.getsid(0):
            os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGKILL)


def _children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(entry.name) and int(fields[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def _end_like(status: int, leftovers: bool) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        os._exit(128 - code)
    os._exit(Exit.LEFTOVERS if code == 0 and leftovers else code)
