"""Progress on stderr: a live view on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TextIO

from kernloom.base.visible_text import visible_line
from kernloom.cli.progress.tally import Tally

if TYPE_CHECKING:
    from kernloom.cli.progress.live import Live
    from kernloom.measure.trial import Trial

_EVERY_S = 5.0
_REFRESH_S = 0.25
_FIRST_S = 0.5
"""A shorter run needs no view and does not pay for one,"""
_LONG = 100
"""unless it has so many items that it cannot be short."""


class Progress:
    """Shows the progress of a phase, and the results of the trials that have ended so far.

    It draws only when it is called, so never while a kernel is being timed.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._living = not quiet and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._live: Live | None = None
        self._tally = Tally()
        self._next = time.monotonic() + (_FIRST_S if self._living else _EVERY_S)

    def update(
        self, phase: str, done: int, total: int, note: str = "", *, part: float = 0.0
    ) -> None:
        """`part` is the estimated progress of unfinished items."""
        if self._quiet or total <= 1:
            return
        now = time.monotonic()
        begun = self._tally.reached(phase, done, total, note, part, now)
        at_once = self._living and begun and total >= _LONG
        if now < self._next and not at_once:
            return
        if self._living:
            self._draw()
            # Counted from the end of drawing, which may itself take a while.
            self._next = time.monotonic() + _REFRESH_S
        else:
            self._next = now + _EVERY_S
            print(visible_line(self._tally.line()), file=self._stream, flush=True)

    def ended(self, trial: Trial) -> None:
        """A trial has ended."""
        if not self._quiet:
            self._tally.add(trial)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if not self._quiet:
            self.clear()
            print(f"kernloom: {text}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Remove the live view before something else is printed."""
        if self._live:
            self._live.clear()

    def _draw(self) -> None:
        if self._live is None:
            from kernloom.cli.progress.live import Live

            self._live = Live(self._stream)
        self._live.draw(self._tally)
