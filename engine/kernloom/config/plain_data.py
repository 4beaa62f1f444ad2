"""Plain data: what a config may hold, checked where code of another package returns it."""

from __future__ import annotations

from typing import Any

MAX_VALUES = 50_000
MAX_DEPTH = 50
_MAX_BITS = 3_000
"""Limit of integers: Python refuses to print much longer ones."""
_SCALARS = (str, int, float, bool, type(None))


def problem_with(value: Any) -> str:
    """Why a value is not plain data of a reasonable size; '' if it is."""
    left = MAX_VALUES
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        inner: list[Any] = []
        if type(node) is dict:
            if not all(type(name) is str for name in node):
                return "a map with a key that is not text"
            inner = list(node.values())
        elif type(node) is list:
            inner = node
        elif type(node) not in _SCALARS:
            return f"a {type(node).__name__}"
        elif type(node) is int and node.bit_length() > _MAX_BITS:
            return f"an integer of {node.bit_length():,} bits"
        if inner and depth == MAX_DEPTH:
            return f"data nested more than {MAX_DEPTH} deep"
        left -= len(inner)
        if left < 0:
            return f"more than {MAX_VALUES:,} values"
        waiting += [(item, depth + 1) for item in inner]
    return ""
