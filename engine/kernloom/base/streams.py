"""stdout and stderr that encode every character, make control characters visible, and ignore a
closed reader; stdout is kept free of what code of other packages prints."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from kernloom.base.visible_text import VisibleText

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT, _STDERR = 1, 2


class _PipeSafeFile(io.FileIO):
    """The file of a stream. After its reader has closed (`| head`), output is discarded: the work
    goes on, and the exit code tells its result."""

    _unread = False

    def write(self, data: ReadableBuffer, /) -> int:
        if not self._unread:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._unread = True
        return memoryview(data).nbytes


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what code of another package prints to stderr, also from C and from its child processes:
    stdout is for the documents of Kernloom."""
    kept = None
    with contextlib.suppress(OSError):  # a stream may be closed
        kept = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, _STDOUT)
            os.close(kept)


def prepare_streams() -> None:
    """Prepare stdout and stderr of this process; null streams if it was started without them."""
    sys.stdout = _prepared(sys.stdout)
    sys.stderr = _prepared(sys.stderr)


def _prepared(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    # Any other stream belongs to a test or an embedding program.
    if type(stream) is not io.TextIOWrapper:
        return stream
    try:
        stream.flush()
        file = _PipeSafeFile(stream.fileno(), "w", closefd=False)
    except OSError:
        return stream
    return VisibleText(
        file if stream.write_through else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
