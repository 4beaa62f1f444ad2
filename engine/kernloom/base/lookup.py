"""Values in plain data, looked up by dotted path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MISSING = object()
"""Result of a failed lookup; None is a valid value."""


def lookup(value: Any, path: Sequence[str]) -> Any:
    """The value at a dotted path; names may contain dots themselves, as swept keys do."""
    if not path:
        return value
    if isinstance(value, Mapping):
        for length in range(len(path), 0, -1):
            name = ".".join(path[:length])
            if name in value:
                found = lookup(value[name], path[length:])
                if found is not MISSING:
                    return found
    if isinstance(value, list) and path[0].isdigit() and int(path[0]) < len(value):
        return lookup(value[int(path[0])], path[1:])
    return MISSING
