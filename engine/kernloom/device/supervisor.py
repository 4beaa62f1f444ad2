"""A supervisor for a worker in Python: does what native/include/kernloom/supervisor.h does."""

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

_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_AWAITED = {signal.SIGCHLD, signal.SIGTERM}
_PAUSE_S = 0.005


def supervise() -> None:
    """Fork: the child returns and works; the parent ends like the child, once nothing is left."""
    prctl = ctypes.CDLL(None).prctl
    engine = os.getppid()
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(_CHILD_SUBREAPER, 1)
    prctl(_PDEATHSIG, signal.SIGTERM)
    if mark := os.environ.get(MARKER):
        set_limit(mark)
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.setpgid(0, 0)
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    _wait(worker, engine)
    status, leftovers = _end_all(worker)
    _end_like(status, leftovers)


def _wait(worker: int, engine: int) -> None:
    """Return when the worker has ended, or when the engine asks for the end or has died."""
    while not _ended(worker) and os.getppid() == engine:
        info = signal.sigwaitinfo(_AWAITED)
        if info.si_signo == signal.SIGTERM and info.si_pid == engine:
            return


def _ended(worker: int) -> bool:
    """Whether the worker has ended; orphans that have are reaped."""
    while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if found.si_pid == worker:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def _end_all(worker: int) -> tuple[int, bool]:
    """Kill the worker and its descendants; its wait status, and whether there were any."""
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
    sys.stderr.flush()
    os._exit(Exit.LEFTOVERS if code == 0 and leftovers else abs(code))
