"""A process that has imported the engine and forks for each command of the tests.

Most of a short command is the import of its modules: a fork of a process that has them costs a
tenth, and is as much a process of its own, with its folder, environment and streams.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

AT_START = ("LANG", "LC_", "LD_", "PYTHON", "OMP_", "OPENBLAS", "MALLOC", "GLIBC")
"""How the names of variables begin that a program reads when it starts or imports."""
LARGEST_REQUEST = 100_000
"""Bytes that surely pass through a socket as one packet."""


class Server:
    """Forks commands; ends with the process that started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._at_start = _at_start(environment)
        self.cpu_s = 0.0
        """CPU time of all commands that have ended, and of what they waited for."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def request(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> bytes | None:
        """The command as one packet; None if it must be a process that starts from nothing."""
        if _at_start(environment) != self._at_start:
            return None
        request = {"words": words, "folder": str(folder), "environment": dict(environment)}
        packet = json.dumps(request).encode()
        return packet if len(packet) <= LARGEST_REQUEST else None

    def run(self, request: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Exit code (negative: the signal), stdout and stderr of a command."""
        pipes = [os.pipe() for _ in range(3)]
        try:
            socket.send_fds(self._requests, [request], [end for _, end in pipes])
        finally:
            for _, end in pipes:
                os.close(end)
        stdout, stderr, report = _read_all([end for end, _ in pipes], timeout_s)
        if not report:
            raise RuntimeError("the server of forked commands has ended")
        code, cpu_s = json.loads(report)
        self.cpu_s += cpu_s
        return code, stdout, stderr


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


def _read_all(ends: Sequence[int], timeout_s: float) -> list[bytes]:
    """What is written to each pipe until its last writer has closed it."""
    found = {end: bytearray() for end in ends}
    with selectors.DefaultSelector() as waiting:
        for end in ends:
            waiting.register(end, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(timeout_s)
            if not ready:
                raise TimeoutError(f"nothing happened for {timeout_s} s")
            for key, _ in ready:
                if data := os.read(key.fd, 1 << 16):
                    found[key.fd] += data
                else:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
    return [bytes(found[end]) for end in ends]


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
                process = os.pidfd_open(child)
                running[process] = (child, report)
                waiting.register(process, selectors.EVENT_READ)


def _report(process: int, child: int, report: int) -> None:
    _, status, used = os.wait4(child, 0)
    os.close(process)
    ended = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]
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
    """The command itself, as `python -m kernloom` would be."""
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
