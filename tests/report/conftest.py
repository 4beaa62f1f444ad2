from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from kernloom.measure.trial import Trial


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


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(**changes: Any) -> Trial:
        values: dict[str, Any] = {
            "id": "0123456789abcdef" * 4,
            "workload": "matmul",
            "case": "default",
            "target": "host",
            "status": "ok",
            "verified": True,
            "params": {
                "tile": {"multiply": {"mr": 6, "kc": 512}},
                "pack": {"multiply": {"b": True}},
            },
            "provider": "model",
            "metrics": {
                "median_ns": 12345.0,
                "ci_low_ns": 12300.0,
                "ci_high_ns": 12500.0,
                "gflops": 88.123,
                "deterministic": [],
            },
            "artifacts": ({"name": "matmul.multiply", "key": "k1", "cached": True},),
            "config": {"arch": {"name": "zen4"}, "toolchain": {"name": "gcc"}},
            "created": "2025-01-02T03:04:05.678+00:00",
        }
        return Trial(**(values | changes))

    return make
