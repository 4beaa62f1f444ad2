"""Registries: names to classes, the only way from a name in a config to code.

A registry has the shipped names and those that other packages add by entry point. Nothing is ever
imported or called by a path from a config.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Generic, TypeVar

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.streams import stdout_to_stderr

T = TypeVar("T")


class Registry(Generic[T]):
    """The objects of one kind (stage, provider, device, fleet, format, ...) by name."""

    def __init__(
        self,
        what: str,
        known: Mapping[str, T],
        *,
        later: Mapping[str, str] | None = None,
        group: str = "",
    ) -> None:
        """`later`: name -> `module:attribute` of shipped objects that are imported on first use.
        `group`: the entry points by which other packages add names."""
        self.what = what
        self.group = group
        self._known = dict(known)
        self._later = dict(later or {})
        self._scanned = not group
        self._broken: dict[str, str] = {}
        self._distributions: dict[str, str] = {}
        """Name -> name and version of the package that added it."""

    def _scan(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        from importlib.metadata import entry_points

        for entry in entry_points(group=self.group):
            if entry.name in self._known or entry.name in self._later:
                continue
            try:
                with stdout_to_stderr():
                    self._known[entry.name] = entry.load()
                if entry.dist:
                    self._distributions[entry.name] = f"{entry.dist.name} {entry.dist.version}"
            except (Exception, SystemExit) as error:
                # A broken package must not stop users who do not need it.
                self._broken[entry.name] = f"{entry.value}: {type(error).__name__}: {error}"

    def names(self) -> list[str]:
        self._scan()
        return sorted({*self._known, *self._later})

    def knows(self, name: str) -> bool:
        """Whether a name is registered, even if its package cannot be loaded."""
        if name not in self._known and name not in self._later:
            self._scan()
        return name in self._known or name in self._later or name in self._broken

    def distribution(self, name: str) -> str:
        """Name and version of the package that added a name; empty for shipped names."""
        return self._distributions.get(name, "")

    def get(self, name: str, *, key: str) -> T:
        if name in self._later:
            module, _, attribute = self._later[name].partition(":")
            self._known[name] = getattr(import_module(module), attribute)
            del self._later[name]
        elif name not in self._known:
            self._scan()
        try:
            return self._known[name]
        except KeyError:
            if name in self._broken:
                raise ConfigError(
                    f"{self.what} '{name}' cannot be loaded from {self._broken[name]}",
                    key=key,
                    hint="Mend or remove the package that adds it.",
                ) from None
            raise self.unknown(name, key=key) from None

    def unknown(self, name: str, *, key: str) -> ConfigError:
        """The error for an unknown name, with how a package adds one."""
        hint = nearest(name, self.names())
        if self.group:
            hint += f" Installed packages add others by entry point: the group is {self.group}."
        return ConfigError(f"unknown {self.what} '{name}'", key=key, hint=hint)
