"""Jinja2 templates, rendered in a process with limited time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import kernloom
from kernloom.base.errors import TemplateError, UnavailableError

Read = Callable[[str], tuple[Path, str] | None]
"""Template name -> its file and text; None if it does not exist."""
WAIT_S = 60.0
"""Timeout of an answer. The worker limits its CPU time itself, so this is reached only on a
hopelessly overloaded machine."""
_LONGEST_ANSWER = 256 << 20
_PIECE = 1 << 16
_KEPT = ("PATH", "LD_LIBRARY_PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")


class Templates:
    """Renders templates and reports the files they used."""

    def __init__(self, folders: Sequence[Path], read: Read) -> None:
        self.folders = list(folders)
        self._read = read
        self._worker: _Worker | None = None

    def render(
        self, name: str, variables: Mapping[str, Any], *, key: str
    ) -> tuple[str, frozenset[str]]:
        """The text, and the names of all templates it loaded or tried to load."""
        answer = self._answer(name, variables)
        if "names" in answer:
            return answer["text"], frozenset(answer["names"])
        if "missing" in answer:
            raise TemplateError(
                f"template '{answer['missing']}' does not exist",
                key=key,
                hint=f"Looked in: {', '.join(map(str, self.folders))}.",
            )
        raise TemplateError(answer["problem"], key=answer["where"])

    def _answer(self, name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        worker = self._worker or _Worker()
        # An interrupted exchange must not leave a worker that is waiting in the middle of it.
        self._worker = None
        try:
            answer = worker.render(name, variables, self._read)
        except _EndedError as ended:
            worker.end()
            found = self._read(name)
            return {"problem": str(ended), "where": str(found[0]) if found else name}
        except BaseException:
            worker.end()
            raise
        if answer.get("ended"):
            worker.end()
        else:
            self._worker = worker
        return answer


class _EndedError(Exception):
    """The worker died or was killed while rendering; the message says why."""


class _Worker:
    """A rendering process and its pipes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # -S skips the search for packages, whose result is passed in: halves the start-up time.
            [sys.executable, "-P", "-S", "-m", "kernloom.plan.template_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            # Ctrl-C is for the engine, which ends the worker.
            process_group=0,
        )
        self.end = weakref.finalize(self, _end, self._process)

    def render(self, name: str, variables: Mapping[str, Any], read: Read) -> dict[str, Any]:
        """Render one template; the worker may request further templates."""
        until = time.monotonic() + WAIT_S
        self._send([name, variables])
        while True:
            message = self._receive(until)
            if "read" not in message:
                return message
            found = read(message["read"])
            self._send([str(found[0]), found[1]] if found else None)

    def _send(self, message: Any) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def _receive(self, until: float) -> dict[str, Any]:
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        received, start, whole = bytearray(), 0, -1
        message: dict[str, Any] = {}
        while True:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise _EndedError(f"takes more than {WAIT_S:g} s")
            piece = os.read(descriptor, _PIECE)
            if not piece:
                raise self._died()
            received += piece
            if len(received) > _LONGEST_ANSWER:
                raise _EndedError("gives more text than is taken")
            if whole < 0 and b"\n" in piece:
                line, _, _ = received.partition(b"\n")
                message = json.loads(line)
                start = len(line) + 1
                whole = start + message["bytes"]
            if len(received) == whole:
                return {**message, "text": received[start:].decode("utf-8", "surrogatepass")}

    def _died(self) -> Exception:
        from kernloom.plan.template_worker import TOO_LARGE, TOO_LONG

        assert self._process.stderr
        code = self._process.wait()
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        last = said[-1] if said else f"exit code {code}"
        if code == -signal.SIGXCPU:
            return _EndedError(TOO_LONG)
        if code < 0:
            return _EndedError(f"ended the process that renders: {signal.Signals(-code).name}")
        if last.startswith("MemoryError"):
            return _EndedError(TOO_LARGE)
        return UnavailableError(f"templates cannot be rendered: {last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for file in (process.stdin, process.stdout, process.stderr):
        if file:
            # The worker did not read its last request.
            with contextlib.suppress(BrokenPipeError):
                file.close()


def _environment() -> dict[str, str]:
    """Minimal environment plus the engine's import path."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    ours = str(Path(kernloom.__file__).resolve().parents[1])
    return {"PYTHONPATH": os.pathsep.join([ours, *filter(None, sys.path)]), **kept}
