"""stdout and stderr that take every character, show control characters instead of sending them to
the terminal, and go on when nobody reads them any more."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from kernloom.base.visible_text import VisibleText

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Outlet(io.FileIO):
    """A stream's file. Once its reader is gone (`| head`), what is written goes nowhere: the work
    that is being told about goes on, and its exit code says how it ended."""

    _unread = False

    def write(self, data: ReadableBuffer, /) -> int:
        if not self._unread:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._unread = True
        return memoryview(data).nbytes


def prepare_streams() -> None:
    """Those of this process, there even if it was started without them."""
    sys.stdout = _prepared(sys.stdout)
    sys.stderr = _prepared(sys.stderr)


def _prepared(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    # Anything else is somebody's own: a test's, an embedding program's.
    if type(stream) is not io.TextIOWrapper:
        return stream
    try:
        stream.flush()
        file = _Outlet(stream.fileno(), "w", closefd=False)
    except OSError:
        return stream
    return VisibleText(
        file if stream.write_through else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
