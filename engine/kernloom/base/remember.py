"""Remembering what was worked out for an object, by the object itself rather than its contents.

The points of a sweep share all of the config that they do not change, as the very same objects, so
that whatever follows from an unchanged section is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

T = TypeVar("T")

LIMIT = 2_000
"""How many results are kept: those of the points that are being worked on, and no more."""


TEXTS = 500
"""The same of results that hold whole texts."""


def make_room(known: dict[Any, Any] | set[Any], limit: int | None = None) -> None:
    """Forget results where there are many; by default of those that hold whole texts."""
    if len(known) >= (TEXTS if limit is None else limit):
        known.clear()


class ById(Generic[T]):
    """Results by the identity of the objects they were made from; the objects must not change."""

    def __init__(self) -> None:
        self._known: dict[int | tuple[int, ...], tuple[tuple[Any, ...], T]] = {}

    def get(self, make: Callable[..., T], *objects: Any) -> T:
        """What `make(*objects)` gave when it was first asked for these very objects."""
        key = id(objects[0]) if len(objects) == 1 else tuple(map(id, objects))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= LIMIT:
                self._known.clear()
            # Keeping the objects keeps their identities from being used again.
            found = self._known[key] = (objects, make(*objects))
        return found[1]


class Alike(Generic[T]):
    """What was worked out for each value of a mapping. The next mapping that is asked about has
    most of them, too, as the very same objects: for those it is not worked out again."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Any], dict[str, T]] = ({}, {})

    def each(self, mapping: Mapping[str, Any], make: Callable[[str, Any], T]) -> dict[str, T]:
        """Name -> `make(name, value)`, in the order of the mapping."""
        last, known = self._last
        found = {
            name: known[name] if name in last and last[name] is value else make(name, value)
            for name, value in mapping.items()
        }
        self._last = (dict(mapping), found)
        return found


class Recalled:
    """Attributes that may be dropped to save memory, and are worked out again when next read."""

    recalled: ClassVar[tuple[str, ...]] = ()
    """Their names; none may have a default in the class."""

    def drop(self) -> None:
        for name in self.recalled:
            with suppress(AttributeError):
                object.__delattr__(self, name)

    def recall(self) -> None:
        """Set the attributes again."""
        raise AttributeError(f"{type(self).__name__} cannot be worked out again")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Called only for attributes that are not there.
            if name not in type(self).recalled:
                raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
            self.recall()
            return object.__getattribute__(self, name)
