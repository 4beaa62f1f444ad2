"""Remembering what was worked out for an object, by the object itself rather than its contents.

The points of a sweep share all of the config that they do not change, as the very same objects, so
that whatever follows from an unchanged section is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LIMIT = 20_000


class ById(Generic[T]):
    """Results by the identity of the objects they were made from; the objects must not change."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[tuple[Any, ...], T]] = {}

    def get(self, make: Callable[..., T], *objects: Any) -> T:
        """What `make(*objects)` gave when it was first asked for these very objects."""
        key = tuple(map(id, objects))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= LIMIT:
                self._known.clear()
            # Keeping the objects keeps their identities from being used again.
            found = self._known[key] = (objects, make(*objects))
        return found[1]
