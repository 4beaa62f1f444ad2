"""Messages that say the same thing: they differ in numbers and paths alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")

_PATH = re.compile(r"(?<![\w./])/[^\s:;,'\"()]+")
# Digits inside a name belong to it: float32 is not float64.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(\.\d+)?([eE][-+]?\d+)?(?![A-Za-z_])")
# How far a compiler indents and underlines depends on the numbers in the line above.
_DRAWN = re.compile(r"~+|\s+")


def alike(
    items: Iterable[T], key: Callable[[T], Hashable], message: Callable[[T], str]
) -> list[list[T]]:
    """Items of one key and of messages that say the same, together, in the order they came."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault((key(item), shape(message(item))), []).append(item)
    return list(groups.values())


def shape(message: str) -> str:
    """A message without its numbers and paths."""
    return _DRAWN.sub(" ", _NUMBER.sub("0", _PATH.sub("/", message))).strip()
