"""The config that group choices compose, as far as completion needs it: its keys, and values that
are lists of names.

Hydra takes longer to import than a completion may, so the defaults lists are read here. Files that
cannot be read are left out. A test compares the result with Hydra's for every shipped config.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernloom.base.errors import KernloomError
from kernloom.base.files import read_text
from kernloom.config.groups import Groups
from kernloom.config.naming import at_root

ROOT = "kernloom"
"""The root config: configs/kernloom.yaml."""
_ABOUT = re.compile(r"^ {0,2}about: *(?:[>|][+-]?\n +)?(.+)$", re.MULTILINE)
_COMMENT = re.compile(r"\A(?:# @package.*\n)?# *(.+)$", re.MULTILINE)
_OVERRIDE = "override "
_LARGEST = 1 << 20
_MOST_FILES = 200
"""Limit of files that are read: defaults lists may lead back to themselves."""


@dataclass(frozen=True)
class _Choice:
    """An entry of a defaults list: an option of a group, and where in the config it goes."""

    group: str
    option: str
    package: str


@dataclass
class Composition:
    """A config composed from configs/ folders; files in earlier folders shadow later ones."""

    folders: Sequence[Path]
    chosen: Mapping[str, str]
    """Group -> option of the command line."""
    data: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    """Group -> option of every group that the config has."""

    def __post_init__(self) -> None:
        self._decided: dict[str, Any] = dict(self.chosen)
        """Group -> option, whatever else defaults lists choose."""
        self._left = _MOST_FILES
        self._add(_Choice("", ROOT, ""))

    def section(self, path: Sequence[str]) -> Mapping[str, Any]:
        """The mapping at a path of keys; empty if there is none."""
        found = self.value(path)
        return found if isinstance(found, Mapping) else {}

    def value(self, path: Sequence[str]) -> Any:
        """The value at a path of keys, or None."""
        node: Any = self.data
        for name in path:
            node = node.get(name) if isinstance(node, Mapping) else None
        return node

    def _add(self, choice: _Choice) -> None:
        self._left -= 1
        text = _text_of(self.folders, choice.group, choice.option)
        data = _parsed(text)
        package = "" if at_root(choice.group, text) else choice.package
        listed = data.pop("defaults", None) or []
        entries = listed if isinstance(listed, list) else []
        for other, option in _overrides_in(entries):
            # Files further out have come first, and they decide.
            self._decided.setdefault(other, option)
        merged = False
        for entry in entries:
            if entry == "_self_":
                self._merge(package, data)
                merged = True
            elif self._left > 0:
                for inner in self._choices(entry, choice.group, package):
                    self._add(inner)
        if not merged:
            self._merge(package, data)

    def _choices(self, entry: Any, group: str, package: str) -> Iterator[_Choice]:
        """The options that an entry of a defaults list chooses."""
        if isinstance(entry, str):
            # Another option of the same group, merged into the same section.
            other, _, option = entry.rpartition("/")
            yield _Choice(other.strip("/") or group, option, package)
        elif isinstance(entry, Mapping):
            for key, listed in entry.items():
                if str(key).startswith(_OVERRIDE):
                    continue
                name, _, place = str(key).removeprefix("optional ").strip().partition("@")
                other = name.strip("/") if name.startswith("/") or not group else f"{group}/{name}"
                decided: Any = listed if place else self._decided.get(other, listed)
                for option in decided if isinstance(decided, list) else [decided]:
                    if isinstance(option, str):
                        if not place:
                            self.groups[other] = option
                        yield _Choice(other, option, _package(package, place, other))

    def _merge(self, package: str, data: Mapping[str, Any]) -> None:
        node = self.data
        for name in filter(None, package.split(".")):
            inner = node.get(name)
            node[name] = node = dict(inner) if isinstance(inner, Mapping) else {}
        node.update(_merged(node, data))


def _overrides_in(entries: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Group and option of each `override` in a defaults list."""
    for entry in entries:
        if isinstance(entry, Mapping):
            for key, option in entry.items():
                if str(key).startswith(_OVERRIDE):
                    yield str(key).removeprefix(_OVERRIDE).strip(" /"), option


def _package(parent: str, place: str, group: str) -> str:
    """Where in the config an option goes: below its parent's section, if that has a place."""
    own = place or group.replace("/", ".")
    if own.startswith("_global_"):
        return own.removeprefix("_global_").strip(".")
    if not place and "." in own:
        return own
    return f"{parent}.{own}" if parent else own


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in change.items():
        inner = result.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        result[str(key)] = _merged(inner, value) if both and inner is not None else value
    return result


def _parsed(text: str) -> dict[str, Any]:
    from kernloom.config.reader import load_yaml

    try:
        data = load_yaml(text, where="")
    except KernloomError:
        return {}
    return dict(data) if isinstance(data, dict) else {}


def options_of(groups: Groups, group: str) -> list[str]:
    """The options of a group; none if a folder cannot be read."""
    try:
        return groups.options(group)
    except OSError:
        return []


def section_of_option(folders: Sequence[Path], group: str, name: str, key: str) -> dict[str, Any]:
    """A section that the file of an option has itself. Only its lines are parsed, so that many
    options can be read."""
    lines = re.compile(rf"^{key}:.*\n?(?:(?:[ \t#].*)?\n)*", re.MULTILINE)
    found = lines.search(_text_of(folders, group, name))
    section = _parsed(found[0]).get(key) if found else None
    return section if isinstance(section, dict) else {}


def about_option(folders: Sequence[Path], group: str, name: str) -> str:
    """The description in the file of an option: its `about`, or else its first comment."""
    text = _text_of(folders, group, name)
    found = _ABOUT.search(text) or _COMMENT.search(text)
    return found[1].strip("'\" ") if found else ""


def _text_of(folders: Sequence[Path], group: str, name: str) -> str:
    """The file of an option, in the first folder that has it; empty if none can be read."""
    for folder in folders:
        try:
            return read_text(folder / group / f"{name}.yaml", limit=_LARGEST)
        except KernloomError:
            continue
    return ""
