"""Documents that many trials share, kept once: a config is stored as what is its own.

The points of a sweep differ in a value or two, while a config has thousands of characters. So a
large section of a document is kept under the hash of its text, and the documents that have it say
`{"$": hash}` in its place. A document without any such place is whole, as all were in version 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

from kernloom.base.files import sha256_text
from kernloom.base.remember import ById

LARGE = 320
"""Sections with a longer text are kept apart."""
OUTER = 1200
"""The same for outermost sections with parts that are kept apart: most often, what a point changes
is in one of those, and then nobody shares it."""
HASH = 32
KEPT = 1000
"""How many sections and documents a reader keeps."""
_PLACE = re.compile(r'\{"\$": "([0-9a-f]{32})"\}')
_encode = json.JSONEncoder().encode


@dataclass(frozen=True)
class Shared:
    """The text of a document, and the sections that are kept apart from it."""

    text: str
    sections: tuple[tuple[str, str], ...] = ()
    """Hash and text of each."""


_Last = dict[str, tuple[Any, str, tuple[tuple[str, str], ...]]]
"""Name -> the value that a mapping last had there, its text, and what is kept apart from that."""


class Writer:
    """Turns documents into texts; what it did for a section it remembers by the object.

    Nothing in a document may change later. Most of one is the same as in the one before.
    """

    def __init__(self) -> None:
        self._outer: ById[Shared] = ById()
        self._inner: ById[Shared] = ById()
        self._last_outer: _Last = {}
        self._last_inner: _Last = {}

    def document(self, value: Any) -> Shared:
        """The outermost text is never kept apart: it is the trial's own."""
        if not isinstance(value, Mapping):
            return Shared(_encode(value))
        return _joined(value, self._last_outer, self._outer, self._outer_section)

    def _outer_section(self, value: Mapping[str, Any]) -> Shared:
        whole = _joined(value, self._last_inner, self._inner, self._inner_section)
        return _apart(whole, OUTER if whole.sections else LARGE)

    def _inner_section(self, value: Mapping[str, Any]) -> Shared:
        return _apart(_joined(value, {}, self._inner, self._inner_section), LARGE)


def _joined(
    value: Mapping[str, Any],
    last: _Last,
    known: ById[Shared],
    section: Callable[[Mapping[str, Any]], Shared],
) -> Shared:
    """The text of a mapping, made of the texts of its sections."""
    if len(value) == 1 and str(next(iter(value))).startswith("$"):
        ((name, inner),) = value.items()
        found = _part(inner, known, section)
        return Shared(f"{{{encode_basestring_ascii(f'${name}')}: {found.text}}}", found.sections)
    parts: list[str] = []
    apart: list[tuple[str, str]] = []
    for name, inner in value.items():
        same = last.get(name)
        if same is None or same[0] is not inner:
            found = _part(inner, known, section)
            key = name if isinstance(name, str) else json.dumps(name)
            text = f"{encode_basestring_ascii(key)}: {found.text}"
            same = (inner, text, found.sections)
            if isinstance(name, str):
                last[name] = same
        parts.append(same[1])
        if same[2]:
            apart += same[2]
    return Shared("{" + ", ".join(parts) + "}", tuple(apart))


def _part(
    value: Any, known: ById[Shared], section: Callable[[Mapping[str, Any]], Shared]
) -> Shared:
    if isinstance(value, Mapping):
        return known.get(section, value)
    return Shared(_encode(value))


def _apart(whole: Shared, limit: int) -> Shared:
    """The place of a section whose text is longer than the limit."""
    if len(whole.text) <= limit:
        return whole
    name = hash_of(whole.text)
    return Shared(f'{{"$": "{name}"}}', (*whole.sections, (name, whole.text)))


def hash_of(text: str) -> str:
    return sha256_text(text)[:HASH]


def check_hash(name: str, text: str) -> None:
    """Refuse the text of a document that is not what was stored under its name."""
    if hash_of(text) != name:
        raise json.JSONDecodeError(f"section {name} does not match its hash", name, 0)


def places_in(text: str) -> list[str]:
    """The hashes of the sections that are kept apart from a text."""
    return _PLACE.findall(text)


def without(text: str, lost: Callable[[str], bool]) -> str:
    """The text with nothing but a note where a section is lost."""

    def instead(place: re.Match[str]) -> str:
        return json.dumps({"lost": place[1]}) if lost(place[1]) else place[0]

    return _PLACE.sub(instead, text)


class Reader:
    """Turns texts into documents, each section of them once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._sections: dict[str, Any] = {}
        self._documents: dict[str, Any] = {}
        """Text -> document; of those that many trials have the same."""
        self._mappings: dict[tuple[Any, ...], dict[str, Any]] = {}
        """Entries -> mapping; inner mappings, which are here too, count by their ids."""

    def need(self, texts: Iterable[str], fetch: Callable[[list[str]], Mapping[str, str]]) -> None:
        """Have ready whatever sections these texts lead to; `fetch` gives texts by hash."""
        if len(self._texts) > KEPT:
            # The points of a sweep may each have sections of their own.
            self._texts.clear()
            self._sections.clear()
        while missing := {name for text in texts for name in places_in(text)} - self._texts.keys():
            found = fetch(sorted(missing))
            for name in missing - found.keys():
                raise json.JSONDecodeError(f"section {name} is not there", name, 0)
            for name, text in found.items():
                check_hash(name, text)
            self._texts |= found
            texts = list(found.values())

    def document(self, text: str) -> Any:
        """The document of a text, which must not be changed: others may have the same one."""
        if '{"$' in text:
            return json.loads(text, object_hook=self._placed)
        found = self._documents.get(text, self)
        if found is self:
            if len(self._documents) > KEPT:
                self._documents.clear()
            found = self._documents[text] = json.loads(text)
        return found

    def _placed(self, value: dict[str, Any]) -> Any:
        if len(value) != 1:
            return self._same(value)
        ((name, inner),) = value.items()
        if name == "$" and isinstance(inner, str) and inner in self._texts:
            if inner not in self._sections:
                self._sections[inner] = self.document(self._texts[inner])
            return self._sections[inner]
        return self._same({name[1:]: inner} if name.startswith("$$") else value)

    def _same(self, value: dict[str, Any]) -> dict[str, Any]:
        """The first mapping that equals this one: trials differ in a few of theirs."""
        if len(self._mappings) > KEPT:
            self._mappings.clear()
        return self._mappings.setdefault(tuple([(n, _mark(v)) for n, v in value.items()]), value)


def _mark(value: Any) -> Any:
    """Equal for values that are the same in JSON, where 1, 1.0 and true differ."""
    kind = type(value)
    if kind is dict:
        return id(value)
    return (kind, tuple(map(_mark, value))) if kind is list else (kind, value)
