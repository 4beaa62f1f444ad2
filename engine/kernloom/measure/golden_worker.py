"""The process that calls functions of golden files: requests on stdin, answers on stdout, each with
a header. Every call is in a fork of its own.

It is started by path in an isolated interpreter and imports nothing of Kernloom. A request is a
line of JSON followed by an array for each input; the answer is a line of JSON, followed by the
result if there is one.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import resource
import signal
import struct
import sys
import traceback
from typing import Any, BinaryIO

_PDEATHSIG = 1
_REQUEST, _ANSWER = struct.Struct("<Q"), struct.Struct("<iQ")
"""Headers, as in golden_process.py."""


def main() -> int:
    _end_with_parent()
    # Once for all calls; each has a process of its own nevertheless.
    import numpy  # noqa: F401

    requests = sys.stdin.buffer
    # What the function prints must not mix with the answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while header := requests.read(_REQUEST.size):
            (count,) = _REQUEST.unpack(header)
            code, data = _forked(requests.read(count), answers.fileno())
            answers.write(_ANSWER.pack(code, len(data)))
            answers.write(data)
            answers.flush()
    return 0


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _forked(request: bytes, answers: int) -> tuple[int, bytes]:
    """Exit code and answer of a call in a new process, which has no way to the engine but its own
    answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _end_with_parent()
            os.close(reading)
            os.close(answers)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            with os.fdopen(writing, "wb") as answer:
                # numpy reads and writes arrays in pipes only by way of memory.
                _serve(io.BytesIO(request), answer)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), data


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    import numpy

    request = json.loads(requests.readline())
    os.chdir(os.path.dirname(request["file"]))  # noqa: PTH120
    read = numpy.lib.format.read_array
    inputs = {name: read(requests, allow_pickle=False) for name in request["inputs"]}
    resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        result = _called(request, inputs)
    except MemoryError:
        return _answer(answers, memory=True)
    except BaseException as error:  # code of the project, which may even call exit()
        return _answer(answers, failed=_where(error, request["file"]))
    try:
        array = numpy.asarray(result)
    except ValueError as error:
        return _answer(answers, problem=f"returned no array: {error}")
    if array.dtype.kind not in "biuf":
        kind = type(result).__name__ if array.dtype.kind in "OUS" else str(array.dtype)
        return _answer(answers, problem=f"returned {kind}, not an array of real numbers")
    if list(array.shape) != request["shape"]:
        return _answer(answers, shape=list(array.shape))
    try:
        data = io.BytesIO()
        numpy.lib.format.write_array(data, numpy.ascontiguousarray(array), allow_pickle=False)
    except MemoryError:
        return _answer(answers, memory=True)
    _answer(answers)
    answers.write(data.getbuffer())
    return None


def _called(request: dict[str, Any], inputs: dict[str, Any]) -> Any:
    with open(request["file"], encoding="utf-8") as file:  # noqa: PTH123
        source = file.read()
    names: dict[str, Any] = {"__name__": "golden", "__file__": request["file"]}
    # The project's own file, named by the project's own config; in a process of its own.
    exec(compile(source, request["file"], "exec"), names)  # noqa: S102
    function = names.get(request["function"])
    if not callable(function):
        known = [name for name, value in names.items() if callable(value) and name[:1] != "_"]
        raise _MissingError(known)
    return function(inputs, request["scalars"], request["sizes"])


class _MissingError(Exception):
    """The file has no such function."""


def _where(error: BaseException, path: str) -> dict[str, Any]:
    if isinstance(error, _MissingError):
        return {"missing": error.args[0]}
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == path:
            line = frame.lineno
    return {"text": f"{type(error).__name__}: {error}"[:2000], "line": line}


def _answer(answers: BinaryIO, **parts: Any) -> None:
    answers.write(json.dumps(parts).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
