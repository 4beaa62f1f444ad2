from __future__ import annotations

import io
from collections.abc import Callable

import pytest


class Terminal(io.TextIOWrapper):
    """A file that says it is a terminal."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Terminal]:
    """Makes terminals of so many columns."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LINES", "40")

    def make(columns: int, encoding: str = "utf-8") -> Terminal:
        monkeypatch.setenv("COLUMNS", str(columns))
        return Terminal(encoding)

    return make
