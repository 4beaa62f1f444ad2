"""The process that calls functions of golden files: requests on stdin, answers on stdout, each with
a header. Every call is in a fork of its own.

It is started by path, without the folders of users in sys.path, and imports nothing of Kernloom. A
request is a line of JSON followed by an array for each input; the answer is a line of JSON,
followed by the result if there is one.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from typing import Any, BinaryIO

_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_REQUEST, _ANSWER = struct.Struct("<dQ"), struct.Struct("<iQ")
"""Headers, as in golden_process.py."""
_TIMED_OUT = -1000
"""Instead of an exit code."""
_PIECE = 1 << 20


def main() -> int:
    _end_with_parent()
    # Processes that a call leaves behind become children of this one, which ends them.
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)
    # Once for all calls; each has a process of its own nevertheless.
    import numpy  # noqa: F401

    requests = sys.stdin.buffer
    # What the function prints must not mix with the answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while header := requests.read(_REQUEST.size):
            seconds, count = _REQUEST.unpack(header)
            code, data = _forked(requests.read(count), answers.fileno(), seconds)
            answers.write(_ANSWER.pack(code, len(data)))
            answers.write(data)
            answers.flush()
    return 0


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _forked(request: bytes, answers: int, seconds: float) -> tuple[int, bytes]:
    """Exit code and answer of a call in a new process, which has no way to the engine but its own
    answer."""
    deadline = time.monotonic() + seconds
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
    data = _received(reading, child, deadline)
    if data is None:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _end_others()
    return (_TIMED_OUT, b"") if data is None else (code, data)


def _received(reading: int, child: int, deadline: float) -> bytes | None:
    """All that a child writes before it ends, whoever else holds the pipe; None if it does not
    end in time."""
    ended = os.pidfd_open(child)
    waiting, data = [reading, ended], bytearray()
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = select.select(waiting, [], [], left)[0]
            if reading in ready:
                piece = os.read(reading, _PIECE)
                data += piece
                if not piece:
                    waiting.remove(reading)
            elif ready:
                return bytes(data)
        return None
    finally:
        os.close(ended)
        os.close(reading)


def _end_others() -> None:
    """End the processes that a call has started and left."""
    me = os.getpid()
    while True:
        try:
            with open(f"/proc/self/task/{me}/children", encoding="ascii") as file:  # noqa: PTH123
                left = [int(text) for text in file.read().split()]
        except OSError:
            return  # a kernel without this file
        if not left:
            return
        for process in left:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    import numpy

    request = json.loads(requests.readline())
    os.chdir(os.path.dirname(request["file"]))  # noqa: PTH120
    read = numpy.lib.format.read_array
    inputs = {name: read(requests, allow_pickle=False) for name in request["inputs"]}
    resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    process = os.getpid()
    try:
        try:
            result = _called(request, inputs)
        finally:
            if os.getpid() != process:
                os._exit(0)  # a fork of the function, which returns as well
    except MemoryError:
        return _answer(answers, memory=True)
    except BaseException as error:  # code of the project, which may even call exit()
        return _answer(answers, failed=_where(error, request["file"]))
    if isinstance(result, numpy.ma.MaskedArray):
        problem = "returned a masked array: a part that does not count is a region of the workload"
        return _answer(answers, problem=problem)
    try:
        array = numpy.asarray(result)
    except Exception as error:  # of the result's own methods
        return _answer(answers, problem=f"returned no array: {_text(error)}")
    if array.dtype.kind not in "biuf":
        kind = type(result).__name__
        kind = f"an array of {array.dtype}" if kind == "ndarray" else kind
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
    return {"text": f"{type(error).__name__}: {_text(error)}"[:2000], "line": line}


def _text(error: BaseException) -> str:
    """The message of an error of the project's code, which may be unable to say it."""
    try:
        return str(error)
    except Exception:
        return "(no message)"


def _answer(answers: BinaryIO, **parts: Any) -> None:
    answers.write(json.dumps(parts).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
