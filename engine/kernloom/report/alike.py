"""Messages that say the same thing: they differ in numbers and paths alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
FIRST = 5
"""How many of those that say the same are kept."""

_PATH = re.compile(r"(?<![\w./])/[^\s:;,'\"()]+")
# Digits inside a name belong to it: float32 is not float64.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(\.\d+)?([eE][-+]?\d+)?(?![A-Za-z_])")
# How far a compiler indents and underlines depends on the numbers in the line above.
_DRAWN = re.compile(r"~+|\s+")


@dataclass
class Alike(Generic[T]):
    """Items whose messages say the same: how many there are, and the first of them."""

    message: str
    """That of the first."""
    first: list[T] = field(default_factory=list)
    count: int = 0
    differ: bool = False
    """In numbers or paths."""

    def add(self, item: T, message: str) -> None:
        if len(self.first) < FIRST:
            self.first.append(item)
        self.count += 1
        self.differ |= message != self.message


def alike(
    items: Iterable[T], key: Callable[[T], Hashable], message: Callable[[T], str]
) -> list[Alike[T]]:
    """Items of one key and of messages that say the same, together, in the order they came."""
    groups: dict[Hashable, Alike[T]] = {}
    for item in items:
        said = message(item)
        groups.setdefault((key(item), shape(said)), Alike(said)).add(item, said)
    return list(groups.values())


def shape(message: str) -> str:
    """A message without its numbers and paths."""
    return _DRAWN.sub(" ", _NUMBER.sub("0", _PATH.sub("/", message))).strip()
