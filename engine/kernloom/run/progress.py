"""Progress of work: how far it is, and each trial that has ended."""

from __future__ import annotations

from typing import Protocol

from kernloom.measure.trial import Trial


class Progress(Protocol):
    """Receives the progress of a run."""

    def update(
        self, phase: str, done: int, total: int, note: str = "", *, part: float = 0.0
    ) -> None:
        """`part` is the estimated progress of unfinished items."""

    def ended(self, trial: Trial) -> None:
        """A trial has ended."""

    def say(self, text: str) -> None:
        """Print a permanent line."""

    def clear(self) -> None:
        """Clear the display, before something else is printed."""


class NoProgress:
    """Discards progress."""

    def update(
        self, phase: str, done: int, total: int, note: str = "", *, part: float = 0.0
    ) -> None:
        pass

    def ended(self, trial: Trial) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def clear(self) -> None:
        pass
