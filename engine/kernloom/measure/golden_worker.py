"""The process that calls a function of a golden file: a request on stdin, an answer on stdout.

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
import sys
import traceback
from typing import Any, BinaryIO

_PDEATHSIG = 1


def main() -> int:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    # What the function prints must not mix with the answer.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        # numpy reads and writes arrays in pipes only by way of memory.
        _serve(io.BytesIO(sys.stdin.buffer.read()), answers)
    return 0


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    import numpy

    request = json.loads(requests.readline())
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
