"""Says on stderr what is going on: one living line on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

_EVERY_S = 5.0


class Progress:
    """Reports how far a phase has come."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._living = stream.isatty()
        self._last = time.monotonic()
        self._shown = False

    def update(self, phase: str, done: int, total: int, note: str = "") -> None:
        if self._quiet or total <= 1:
            return
        text = f"{phase} {done}/{total}" + (f"  {note}" if note else "")
        if self._living:
            self._stream.write(f"\r\x1b[2K{text[:100]}")
            self._stream.flush()
            self._shown = True
        elif time.monotonic() - self._last > _EVERY_S:
            self._last = time.monotonic()
            print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the living line away before something else is printed."""
        if self._shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._shown = False
