"""Attributes that are dropped to save memory, and worked out again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar


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
