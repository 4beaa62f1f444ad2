"""Goldens and masks that are functions in Python files of the project: `golden.py:fir`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernloom.config.schema import Workload

_FILE = re.compile(r"\s*([^:\n]+\.py)\s*:\s*([A-Za-z_]\w*)\s*", re.ASCII)


@dataclass(frozen=True)
class GoldenFile:
    """A function in a Python file."""

    path: str
    """Relative to the project's folder."""
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"


def golden_file(text: object) -> GoldenFile | None:
    """The function that a golden or a mask names, if it is in a Python file."""
    match = _FILE.fullmatch(text) if isinstance(text, str) else None
    return GoldenFile(match[1], match[2]) if match else None


def golden_files(workload: Workload) -> Iterator[tuple[str, GoldenFile]]:
    """Config key -> function, for every golden and mask in a Python file."""
    for section, texts in (("golden", workload.golden), ("region", workload.region)):
        for name, text in texts.items():
            if found := golden_file(text):
                yield f"workload.{section}.{name}", found
