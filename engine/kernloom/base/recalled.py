"""Attributes that are dropped to save memory, and computed again on demand."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar


class Recalled:
    """Base of classes with attributes that can be dropped and are computed again when next read."""

    recalled: ClassVar[tuple[str, ...]] = ()
    """Names of these attributes; none may have a default in the class."""

    def drop(self) -> None:
        for name in self.recalled:
            with suppress(AttributeError):
                object.__delattr__(self, name)

    def recall(self) -> None:
        """Set the dropped attributes again."""
        raise AttributeError(f"{type(self).__name__} cannot be worked out again")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Called only for missing attributes.
            if name not in type(self).recalled:
                raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
            self.recall()
            return object.__getattribute__(self, name)
