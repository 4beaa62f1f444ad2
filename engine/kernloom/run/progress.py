"""What is told while work goes on: how far it has come, and each trial that has ended."""

from __future__ import annotations

from typing import Protocol

from kernloom.measure.trial import Trial


class Progress(Protocol):
    """Whoever wants to know how far a run has come."""

    def update(
        self, phase: str, done: int, total: int, note: str = "", *, part: float = 0.0
    ) -> None:
        """`part` is how much of what is not done is done nevertheless, as far as one can tell."""

    def ended(self, trial: Trial) -> None:
        """A trial has ended."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def clear(self) -> None:
        """Something else is printed next."""


class NoProgress:
    """Nobody wants to know."""

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
