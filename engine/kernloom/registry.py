"""Names to classes: the only way a word in a config becomes code.

A registry knows what ships with Kernloom and what other packages add by entry point. Nothing a
config says is ever imported or called by path.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from kernloom.errors import ConfigError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """What is known under a kind of name (stage, provider, device, reference, generator)."""

    def __init__(self, what: str, known: Mapping[str, T], *, group: str = "") -> None:
        self.what = what
        self._known = dict(known)
        self._group = group
        self._scanned = not group

    def _scan(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        for entry in entry_points(group=self._group):
            if entry.name not in self._known:
                self._known[entry.name] = entry.load()

    def names(self) -> list[str]:
        self._scan()
        return sorted(self._known)

    def get(self, name: str, *, key: str) -> T:
        if name not in self._known:
            self._scan()
        try:
            return self._known[name]
        except KeyError:
            raise ConfigError(
                f"unknown {self.what} '{name}'", key=key, hint=nearest(name, self._known)
            ) from None
