"""Overrides of the config as data: the parsed words of a command line.

`override_parser` makes them from words. Questions about a command line are answered by the
overrides; the words are not parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

Kind = Literal["change", "add", "force", "delete"]

OPEN_KEYS = (
    "select.fixed.",
    "pipeline.stages.",
    "workload.cases.",
    "sweep.axes.",
    "sweep.points.",
)
"""Maps that accept new keys without Hydra's leading `+`."""
WORD = re.compile(r"[A-Za-z][A-Za-z_0-9]*")
CONSTANTS = {"true": True, "false": False, "null": None}
_QUOTES = re.compile(r"(\\*)('|$)")


@dataclass(frozen=True)
class Override:
    """One `key=value` of the command line."""

    text: str
    kind: Kind
    key: str
    values: Sequence[Any]
    """One value; several in a sweep; none for `~key`, one for `~key=value`."""
    group: bool
    """Whether it chooses an option of a config group."""
    swept: bool = False
    package: str | None = None

    @classmethod
    def of(cls, key: str, value: Any, *, group: bool) -> Override:
        """An override that sets a key to a value given by a program."""
        kind: Kind = "force" if is_open(key) else "change"
        return cls(f"{key}={spelled(value)}", kind, key, (value,), group)

    @classmethod
    def axis(cls, key: str, values: Sequence[Any], *, group: bool = False) -> Override:
        """An override that sweeps a key over values."""
        text = f"{key}=choice({','.join(map(spelled, values))})"
        return replace(cls.of(key, None, group=group), text=text, values=values, swept=True)

    @property
    def root(self) -> str:
        """The root key: `store` of store.path=x and of store=sqlite."""
        return self.key.split(".")[0]

    def at(self, value: Any) -> Override:
        """The override of a point: the same key with one of the values."""
        if not self.swept:
            return self
        # The text after the sign may hold thousands of values.
        text = f"{self.text[: self.text.index('=')]}={spelled(value)}"
        return Override(text, self.kind, self.key, (value,), self.group, package=self.package)

    def hydra_text(self, value: Any) -> str:
        """The group choice in Hydra's syntax."""
        # Hydra has no option null: no option is chosen if the entry is deleted.
        kind = self.kind if value is not None else "delete"
        prefix = {"change": "", "add": "+", "force": "++", "delete": "~"}[kind]
        package = f"@{self.package}" if self.package else ""
        chosen = "" if value is None else f"={value}"
        return f"{prefix}{self.key}{package}{chosen}"


@dataclass(frozen=True)
class Overrides(Sequence[Override]):
    """The overrides of one command line, in its order."""

    items: tuple[Override, ...] = ()
    multirun: bool = False
    """Whether several values of a key mean a sweep."""
    for_hydra: bool = False
    """Whether one sets something of Hydra's own, such as a launcher: then Hydra gets all of them,
    and enumerates the sweep itself."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Override]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Override: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Override, ...]: ...
    def __getitem__(self, index: int | slice) -> Override | tuple[Override, ...]:
        return self.items[index]

    @property
    def text(self) -> tuple[str, ...]:
        """The overrides as words."""
        return tuple(override.text for override in self.items)

    @property
    def swept_keys(self) -> frozenset[str]:
        return frozenset(override.key for override in self.items if override.swept)

    def values(self, key: str) -> list[Any]:
        """All values given to a key; empty if it is not overridden."""
        return [
            value for override in self.items if override.key == key for value in override.values
        ]

    def mentions(self, root: str) -> bool:
        """Whether a root key or a key below it is overridden."""
        return any(override.root == root for override in self.items)

    def about(self, *roots: str) -> Overrides:
        """The overrides of these root keys and of keys below them."""
        return self.where(lambda override: override.root in roots)

    def without(self, *roots: str) -> Overrides:
        """All overrides except those of these root keys and of keys below them."""
        return self.where(lambda override: override.root not in roots)

    def where(self, test: Callable[[Override], bool]) -> Overrides:
        return replace(self, items=tuple(filter(test, self.items)))

    def then(self, more: Iterable[Override]) -> Overrides:
        """These overrides followed by others; for each key the last value wins."""
        return replace(self, items=(*self.items, *more))


def is_open(key: str) -> bool:
    """Whether a key is in a map that accepts new keys."""
    return key.startswith(OPEN_KEYS)


def root_key(word: str) -> str:
    """The root key of a word that another program will parse."""
    return word.lstrip("+~").partition("=")[0].split(".")[0].split("@")[0]


def spelled(value: Any) -> str:
    """A value in Hydra's syntax."""
    if isinstance(value, (bool, type(None))):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(spelled, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{spelled(inner)}" for key, inner in value.items()) + "}"
    text = str(value)
    if not isinstance(value, str) or (
        WORD.fullmatch(text) and text.lower() not in (*CONSTANTS, "inf", "nan")
    ):
        return text
    # A backslash is an escape character only before a quote.
    inside = _QUOTES.sub(lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{inside}'"
