"""Groups similar messages: those that differ only in numbers and paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
FIRST = 5
"""Number of items kept per group."""

_PATH = re.compile(r"(?<![\w./])/[^\s:;,'\"()]+")
# Digits inside a name belong to it: float32 is not float64.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(\.\d+)?([eE][-+]?\d+)?(?![A-Za-z_])")
# A compiler's indentation and underlining depend on the numbers in the line above.
_DRAWN = re.compile(r"~+|\s+")


@dataclass
class SimilarItems(Generic[T]):
    """A group of items with similar messages: its size and its first items."""

    message: str
    """The first item's message."""
    first: list[T] = field(default_factory=list)
    count: int = 0
    differ: bool = False
    """Whether messages differ, in numbers or paths."""

    def add(self, item: T, message: str) -> None:
        if len(self.first) < FIRST:
            self.first.append(item)
        self.count += 1
        self.differ |= message != self.message


def group_similar(
    items: Iterable[T], key: Callable[[T], Hashable], message: Callable[[T], str]
) -> list[SimilarItems[T]]:
    """Group items with the same key and similar messages, in order of appearance."""
    groups: dict[Hashable, SimilarItems[T]] = {}
    for item in items:
        said = message(item)
        groups.setdefault((key(item), shape(said)), SimilarItems(said)).add(item, said)
    return list(groups.values())


def shape(message: str) -> str:
    """A message without its numbers and paths."""
    return _DRAWN.sub(" ", _NUMBER.sub("0", _PATH.sub("/", message))).strip()
