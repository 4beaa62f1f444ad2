"""Documents that many trials share, kept once: a config is stored as what is its own.

The points of a sweep differ in a value or two, while a config has thousands of characters. So a
large section of a document is kept under the hash of its text, and the documents that have it say
`{"$": hash}` in its place. A document without any such place is whole, as all were in version 1.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

from kernloom.base.files import sha256_text

LARGE = 320
"""Sections with a longer text are kept apart."""
OUTER = 1200
"""The same for outermost sections with parts that are kept apart: most often, what a point changes
is in one of those, and then nobody shares it."""
HASH = 32
KEPT = 1000
"""How many sections and documents a reader or a writer keeps."""
_PLACE = re.compile(r'\{"\$": "([0-9a-f]{32})"\}')
_encode = json.JSONEncoder().encode

Sections = tuple[tuple[str, str], ...]
"""Hash and text of each."""


@dataclass(frozen=True)
class Shared:
    """The text of a document, and the sections that are kept apart from it."""

    text: str
    sections: Sections = ()


class _Last:
    """What a place in the last document held, its text, and the places inside it.

    The documents of a sweep have most of their sections as the very same objects; those of the
    last document are still held here, so that the same object means the same text.
    """

    __slots__ = ("inside", "sections", "text", "value")

    def __init__(self) -> None:
        self.value: Any = self
        self.text = ""
        self.sections: Sections = ()
        self.inside: dict[str, _Last] = {}


class Writer:
    """Turns documents into texts. Nothing in a document may change later."""

    def __init__(self) -> None:
        self._last = _Last()

    def document(self, value: Any) -> Shared:
        """The outermost text is never kept apart: it is the trial's own."""
        if not isinstance(value, Mapping):
            return Shared(_encode(value))
        return _joined(value, self._last, depth=0)


def _joined(value: Mapping[str, Any], last: _Last, depth: int) -> Shared:
    """The text of a mapping, made of the texts of its sections."""
    if len(value) == 1 and str(next(iter(value))).startswith("$"):
        # Not a place of ours: one more sign says so.
        value = {f"${name}": inner for name, inner in value.items()}
    parts: list[str] = []
    apart: Sections = ()
    if len(last.inside) > KEPT:
        last.inside.clear()
    for name, inner in value.items():
        key = name if isinstance(name, str) else json.dumps(name)
        place = last.inside.get(key)
        if place is None:
            place = last.inside[key] = _Last()
        if place.value is not inner:
            found = _section(inner, place, depth + 1)
            place.value, place.sections = inner, found.sections
            place.text = f"{encode_basestring_ascii(key)}: {found.text}"
        parts.append(place.text)
        if place.sections:
            apart += place.sections
    return Shared("{" + ", ".join(parts) + "}", apart)


def _section(value: Any, last: _Last, depth: int) -> Shared:
    """The text of a value in a document, or the place of a section with a long text."""
    if not isinstance(value, Mapping):
        return Shared(_encode(value))
    whole = _joined(value, last, depth)
    if len(whole.text) <= (OUTER if depth == 1 and whole.sections else LARGE):
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


@dataclass(frozen=True, slots=True)
class _Known:
    """A mapping that several documents share, and its number: equal content, equal number."""

    value: Any
    number: int


class Reader:
    """Turns texts into documents, each section of them once."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._texts: dict[str, str] = {}
        self._sections: dict[str, _Known] = {}
        """Hash -> section."""
        self._documents: dict[str, Any] = {}
        """Text -> document; of those that many trials have the same."""
        self._mappings: dict[tuple[Any, ...], _Known] = {}
        """Entries -> mapping, where a mapping inside it stands as its number."""

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
            return _plain(json.loads(text, object_hook=self._shared))
        if len(self._documents) > KEPT:
            self._documents.clear()
        found = self._documents.get(text, self)
        if found is self:
            found = self._documents[text] = json.loads(text)
        return found

    def _shared(self, value: dict[str, Any]) -> _Known:
        """The section in whose place a mapping is, or the first mapping with the same content."""
        if len(value) == 1:
            ((name, inner),) = value.items()
            if name == "$" and isinstance(inner, str) and inner in self._texts:
                if inner not in self._sections:
                    section = self.document(self._texts[inner])
                    self._sections[inner] = _Known(section, next(self._numbers))
                return self._sections[inner]
            if name.startswith("$$"):
                value = {name[1:]: inner}
        if len(self._mappings) > KEPT:
            self._mappings.clear()
        key = tuple([(name, _mark(inner)) for name, inner in value.items()])
        known = self._mappings.get(key)
        if known is None:
            whole = {name: _plain(inner) for name, inner in value.items()}
            known = self._mappings[key] = _Known(whole, next(self._numbers))
        return known


def _plain(value: Any) -> Any:
    if type(value) is list:
        return [_plain(inner) for inner in value]
    return value.value if type(value) is _Known else value


def _mark(value: Any) -> Any:
    """Equal for values that are the same in JSON, where 1, 1.0 and true differ."""
    kind = type(value)
    if kind is _Known:
        return (kind, value.number)
    return (kind, tuple(map(_mark, value))) if kind is list else (kind, value)
