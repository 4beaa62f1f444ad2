"""Sections that many documents share, stored once.

The points of a sweep differ in a value or two, while a config has thousands of characters. So a
large section of a document is stored under the hash of its text, and the documents that contain it
have a reference `{"$": hash}` in its place. A document without references is whole, as all were in
version 1.
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
"""Sections with a longer text are stored separately."""
OUTER = 1200
"""The same limit for outermost sections with separately stored parts: usually the part that a point
changes is in one of those, and then nobody shares it."""
HASH = 32
MAX_CACHED = 1000
"""Sections and documents that a reader or writer keeps."""
_PLACE = re.compile(r'\{"\$": "([0-9a-f]{32})"\}')
_encode = json.JSONEncoder().encode

Sections = tuple[tuple[str, str], ...]
"""Hash and text of each."""


@dataclass(frozen=True)
class Shared:
    """The text of a document, and its separately stored sections."""

    text: str
    sections: Sections = ()


class _Last:
    """The value at a place in the last document, its text, and the places inside it.

    The documents of a sweep share most sections as the same objects; the last document's are kept
    alive here, so that the same object means the same text.
    """

    __slots__ = ("inside", "sections", "text", "value")

    def __init__(self) -> None:
        self.value: Any = self
        self.text = ""
        self.sections: Sections = ()
        self.inside: dict[str, _Last] = {}


class Writer:
    """Encodes documents as texts. A document must not change later."""

    def __init__(self) -> None:
        self._last = _Last()

    def document(self, value: Any) -> Shared:
        """The outermost text is never stored separately, because it is the trial's own."""
        if not isinstance(value, Mapping):
            return Shared(_encode(value))
        return _joined(value, self._last, depth=0)


def _joined(value: Mapping[str, Any], last: _Last, depth: int) -> Shared:
    """The text of a mapping, joined from the texts of its sections."""
    if len(value) == 1 and str(next(iter(value))).startswith("$"):
        # Not one of our references: escaped by another `$`.
        value = {f"${name}": inner for name, inner in value.items()}
    parts: list[str] = []
    apart: Sections = ()
    if len(last.inside) > MAX_CACHED:
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
    """The text of a value, or a reference if the text is long."""
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
    """Refuse the text of a document that does not match its hash."""
    if hash_of(text) != name:
        raise json.JSONDecodeError(f"section {name} does not match its hash", name, 0)


def places_in(text: str) -> list[str]:
    """The hashes of the sections that a text refers to."""
    return _PLACE.findall(text)


def without(text: str, lost: Callable[[str], bool]) -> str:
    """The text with a note in place of each lost section."""

    def instead(place: re.Match[str]) -> str:
        return json.dumps({"lost": place[1]}) if lost(place[1]) else place[0]

    return _PLACE.sub(instead, text)


@dataclass(frozen=True, slots=True)
class _Known:
    """A mapping that several documents share, and its number: equal content, equal number."""

    value: Any
    number: int


class Reader:
    """Decodes texts to documents, each section only once."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._texts: dict[str, str] = {}
        self._sections: dict[str, _Known] = {}
        """Hash -> section."""
        self._documents: dict[str, Any] = {}
        """Text -> document, for documents that are the same in many trials."""
        self._mappings: dict[tuple[Any, ...], _Known] = {}
        """Entries -> mapping; a nested mapping is represented by its number."""

    def need(self, texts: Iterable[str], fetch: Callable[[list[str]], Mapping[str, str]]) -> None:
        """Load all sections that these texts refer to; `fetch` returns texts by hash."""
        if len(self._texts) > MAX_CACHED:
            # Each point of a sweep may have sections of its own.
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
        """The document of a text; shared, so it must not be changed."""
        if '{"$' in text:
            return _plain(json.loads(text, object_hook=self._shared))
        if len(self._documents) > MAX_CACHED:
            self._documents.clear()
        found = self._documents.get(text, self)
        if found is self:
            found = self._documents[text] = json.loads(text)
        return found

    def _shared(self, value: dict[str, Any]) -> _Known:
        """The section that a reference stands for, or the first mapping with the same content."""
        if len(value) == 1:
            ((name, inner),) = value.items()
            if name == "$" and isinstance(inner, str) and inner in self._texts:
                if inner not in self._sections:
                    section = self.document(self._texts[inner])
                    self._sections[inner] = _Known(section, next(self._numbers))
                return self._sections[inner]
            if name.startswith("$$"):
                value = {name[1:]: inner}
        if len(self._mappings) > MAX_CACHED:
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
