"""Differences of two configs, two locks or two recipes, in the words of the config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from kernloom.base.files import canonical_json
from kernloom.config.schema import Experiment
from kernloom.recipe.entries import plain
from kernloom.recipe.fields import FIELDS, Rule

NOTHING = "(absent)"
_NOT_COMPARED = ("about", "provenance")
_SHOWN = 60


@dataclass(frozen=True)
class Difference:
    """A key with two values."""

    key: str
    old: Any
    new: Any

    @property
    def text(self) -> str:
        return f"{self.key}: {shown(self.old)} -> {shown(self.new)}"

    def document(self) -> dict[str, Any]:
        return {"key": self.key, "old": self.old, "new": self.new}


def shown(value: Any) -> str:
    """A value in a line, cut if it is long."""
    text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def differing(old: Any, new: Any, key: str = "") -> Iterator[Difference]:
    """Every key with different values."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{key}.{name}" if key else str(name)
            yield from differing(old.get(name, NOTHING), new.get(name, NOTHING), inner)
    elif canonical_json(plain(old)) != canonical_json(plain(new)):
        yield Difference(key, plain(old), plain(new))


def comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without descriptions and advice for installing, which change no result."""
    kept = {name: value for name, value in config.items() if name in FIELDS[Experiment]}
    result: dict[str, Any] = _comparable(Experiment, plain(kept))
    return result


def _comparable(wanted: Any, value: Any) -> Any:
    if isinstance(value, dict):
        if wanted in FIELDS:
            rules, hints = FIELDS[wanted], get_type_hints(wanted)
            return {
                name: _comparable(_dataclass(hints.get(name)), inner)
                for name, inner in value.items()
                if name not in _NOT_COMPARED
                and rules.get(name) not in (Rule.ADVICE, Rule.LOCAL)
                and inner not in (None, {}, [], "")
            }
        # An option that was added since has no value in older locks.
        given = {name: inner for name, inner in value.items() if inner is not None}
        return {name: _comparable(wanted, inner) for name, inner in given.items()}
    return value


def _dataclass(wanted: Any) -> Any:
    """The dataclass in a type hint such as Mapping[str, Kernel] or Arch | None."""
    if wanted in FIELDS:
        return wanted
    return next((found for inner in get_args(wanted) if (found := _dataclass(inner))), None)
