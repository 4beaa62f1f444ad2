"""The process that runs functions of golden files, each call in a fork of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

_WORKER = Path(__file__).with_name("golden_worker.py")
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    # Else the order of a set would differ from one process to another.
    "PYTHONHASHSEED": "0",
}
_REQUEST, _ANSWER = struct.Struct("<dQ"), struct.Struct("<iQ")
"""Headers: time limit and bytes that follow; exit code of the call, and bytes that follow."""
_TIMED_OUT = -1000
"""Exit code of a call that did not end in time: the process has ended it."""
_GRACE_S = 10.0
"""Time for the process to end a call, and to answer."""
_PIECE = 1 << 20
_kept = threading.local()


class GoldenProcess:
    """Starts once, with numpy; a call that crashes or changes modules affects no other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # Isolated but for the seed of hashes, which -I would not take from the environment.
            [sys.executable, "-s", "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            process_group=0,
        )
        self.owner = os.getpid()
        self.end = weakref.finalize(self, _end, self._process, self.owner)

    def call(self, request: memoryview, seconds: float) -> tuple[int, bytes]:
        """The exit code and the answer of a call; TimeoutError if there is none in time."""
        deadline = time.monotonic() + seconds + _GRACE_S
        assert self._process.stdin
        try:
            self._process.stdin.write(_REQUEST.pack(seconds, request.nbytes))
            self._process.stdin.write(request)
            self._process.stdin.flush()
            code, count = _ANSWER.unpack(self._received(_ANSWER.size, deadline))
            if code == _TIMED_OUT:
                raise TimeoutError
            return code, self._received(count, deadline)
        except (BrokenPipeError, EOFError):
            return self._process.wait(), b""

    def _received(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        data = bytearray()
        while len(data) < count:
            left = max(deadline - time.monotonic(), 0)
            if not poll.poll(1000 * left):
                raise TimeoutError
            piece = os.read(descriptor, min(count - len(data), _PIECE))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


def run_golden(request: memoryview, seconds: float) -> tuple[int, bytes]:
    """A call in this thread's process, which ends with the thread."""
    process: GoldenProcess | None = getattr(_kept, "process", None)
    if process is None or process.owner != os.getpid():
        process = _kept.process = GoldenProcess()
    whole = False
    try:
        found = process.call(request, seconds)
        whole = bool(found[1])
        return found
    finally:
        if not whole:
            # It has ended, or is still busy with this call.
            del _kept.process
            process.end()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the engine
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()
