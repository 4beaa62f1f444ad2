"""A process that has imported the engine and forks for each command of the tests.

Most of a short command is the import of its modules: a fork of a process that has them costs a
tenth, and is as much a process of its own, with its folder, environment and streams.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, NoReturn

AT_START = ("LANG", "LC_", "LD_", "PYTHON", "OMP_", "OPENBLAS", "MALLOC", "GLIBC")
"""How the names of variables begin that a program reads when it starts or imports."""
PR_SET_PDEATHSIG = 1
LARGEST_REQUEST = 100_000
"""Bytes that surely pass through a socket as one packet."""


class Server:
    """Forks commands; ends with the process that started it."""

    cpu_s = 0.0
    """CPU time of the commands of all servers that have ended, and of what they waited for."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._at_start = _at_start(environment)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def request(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        group: bool = False,
    ) -> bytes | None:
        """The command as one packet; None if it must be a process that starts from nothing.
        `group`: it leads a process group of its own."""
        if _at_start(environment) != self._at_start:
            return None
        request = {
            "words": words,
            "folder": str(folder),
            "environment": dict(environment),
            "group": group,
        }
        packet = json.dumps(request).encode()
        return packet if len(packet) <= LARGEST_REQUEST else None

    def start(self, request: bytes) -> Forked:
        pipes = [os.pipe() for _ in range(3)]
        try:
            socket.send_fds(self._requests, [request], [end for _, end in pipes])
        finally:
            for _, end in pipes:
                os.close(end)
        return Forked(*(end for end, _ in pipes), self._note)

    def _note(self, cpu_s: float) -> None:
        Server.cpu_s += cpu_s


class Forked:
    """A running command, with those methods of `subprocess.Popen` that tests use."""

    def __init__(
        self, stdout: int, stderr: int, report: int, ended: Callable[[float], None]
    ) -> None:
        self.stdout = open(stdout, encoding="utf-8")  # noqa: SIM115 (its process closes it)
        self.stderr = open(stderr, encoding="utf-8")  # noqa: SIM115
        self.returncode: int | None = None
        self._report = report
        self._ended = ended
        first = b""
        while not first.endswith(b"\n"):
            # No further: the rest is there when the process has ended.
            first += (letter := os.read(report, 1))
            if not letter:
                raise RuntimeError("the server of forked commands has ended")
        self.pid = int(first)

    def poll(self) -> int | None:
        return self.returncode if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._has_ended(timeout) or self.returncode is None:
            raise subprocess.TimeoutExpired(f"kernloom (process {self.pid})", timeout or 0)
        return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                return False
            self.returncode, cpu_s = json.loads(os.read(self._report, 1000))
            os.close(self._report)
            self._ended(cpu_s)
        return True

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of what it writes; a command that takes longer than `timeout` is ended."""
        try:
            with futures.ThreadPoolExecutor(2) as reading:
                waiting = [reading.submit(end.read) for end in (self.stdout, self.stderr)]
                try:
                    stdout, stderr = (future.result(timeout) for future in waiting)
                except TimeoutError:
                    self.kill()
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
            self.wait(timeout)
        finally:
            self.stdout.close()
            self.stderr.close()
        return stdout, stderr


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


def _serve(requests: socket.socket) -> int:
    """Fork for each request and report how it ended, until nobody can send one any more."""
    _import_engine()
    running: dict[int, tuple[int, int]] = {}
    """The file of a process -> its id, and where to report."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is not requests:
                    waiting.unregister(key.fd)
                    _report(key.fd, *running.pop(key.fd))
                    continue
                packet, ends, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 3)
                if not packet:
                    return 0
                stdout, stderr, report = ends
                child = os.fork()
                if not child:
                    waiting.close()
                    for end in (requests.detach(), report, *running):
                        os.close(end)
                    for _, other in running.values():
                        os.close(other)
                    _become(json.loads(packet), stdout, stderr)
                os.close(stdout)
                os.close(stderr)
                os.write(report, f"{child}\n".encode())
                process = os.pidfd_open(child)
                running[process] = (child, report)
                waiting.register(process, selectors.EVENT_READ)


def _report(process: int, child: int, report: int) -> None:
    _, status, used = os.wait4(child, 0)
    os.close(process)
    ended = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]
    # Whoever started it may have gone on without it.
    with contextlib.suppress(BrokenPipeError):
        os.write(report, json.dumps(ended).encode())
    os.close(report)


def _import_engine() -> None:
    import kernloom

    gc.disable()  # as the command itself does
    left_out = ("kernloom.__main__", "kernloom.plan.template_worker")
    for module in pkgutil.walk_packages(kernloom.__path__, "kernloom."):
        if module.name not in left_out and "opencl" not in module.name:
            importlib.import_module(module.name)


def _become(request: Mapping[str, Any], stdout: int, stderr: int) -> NoReturn:
    """The command itself, as `python -m kernloom` would be; one that hangs must not outlive tests
    that were killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if request["group"]:
        os.setpgid(0, 0)
    for number, end in ((1, stdout), (2, stderr)):
        os.dup2(end, number)
        os.close(end)
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["kernloom", *request["words"]]
    from kernloom.cli import main

    code = 1
    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without taking every module apart, which costs more than the fork.
    os._exit(code)


def _stream(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        open(number, "wb", closefd=False),
        encoding="utf-8",
        line_buffering=number == 2,
        errors="backslashreplace" if number == 2 else "strict",
    )


if __name__ == "__main__":
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
