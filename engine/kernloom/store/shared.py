"""Sections that many documents share, stored once.

The points of a sweep differ in a value or two, while a config has thousands of characters. So a
large section of a document is stored under the hash of its text, and the documents that contain it
have a reference `{"$": hash}` in its place. A document without references is whole, as all were in
version 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring_ascii
from sys import intern
from typing import Any, NamedTuple

from kernloom.base.files import sha256_text

LARGE = 320
"""Sections with a longer text are stored separately."""
OUTER = 1200
"""The same limit for outermost sections with separately stored parts: usually the part that a point
changes is in one of those, and then nobody shares it."""
HASH = 32
MAX_CACHED = 1000
"""Sections and documents that a reader or writer keeps."""
_REFERENCE = re.compile(r'\{"\$": "([0-9a-f]{32})"\}')
_encode = json.JSONEncoder().encode
Sections = tuple[tuple[str, str], ...]
"""Hash and text of each."""


class Shared(NamedTuple):
    """The text of a document, and its separately stored sections."""

    text: str
    sections: Sections = ()


class Writer:
    """Encodes documents as texts. A document must not change later."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], dict[str, tuple[Any, str, Sections]]] = {}
        """Path and name -> the value there in the last document, the text of its entry, and its
        separately stored sections. The documents of a sweep share most values as the same
        objects."""

    def document(self, value: Mapping[str, Any], name: str = "") -> Shared:
        """The outermost text is never stored separately, because it is the trial's own."""
        if len(self._last) > MAX_CACHED:
            self._last.clear()
        return self._joined(value, (name,))

    def _joined(self, value: Mapping[str, Any], path: tuple[str, ...]) -> Shared:
        """The text of a mapping, joined from the texts of its entries."""
        if len(value) == 1 and str(next(iter(value))).startswith("$"):
            # Not one of our references: escaped by another `$`.
            value = {f"${name}": inner for name, inner in value.items()}
        parts: list[str] = []
        sections: Sections = ()
        known = self._last.setdefault(path, {})
        if len(known) > MAX_CACHED:
            known.clear()
        for name, inner in value.items():
            key = name if isinstance(name, str) else json.dumps(name)
            last = known.get(key)
            if last is None or last[0] is not inner:
                written = self._written(inner, (*path, key))
                text = f"{encode_basestring_ascii(key)}: {written.text}"
                last = known[key] = (inner, text, written.sections)
            parts.append(last[1])
            if last[2]:
                sections += last[2]
        return Shared(f"{{{', '.join(parts)}}}", sections)

    def _written(self, value: Any, path: tuple[str, ...]) -> Shared:
        """The text of a value, or a reference if it is a section with a long text."""
        if not isinstance(value, Mapping):
            return Shared(_encode(value))
        whole = self._joined(value, path)
        if len(whole.text) <= (OUTER if len(path) == 2 and whole.sections else LARGE):
            return whole
        name = hash_of(whole.text)
        return Shared(f'{{"$": "{name}"}}', (*whole.sections, (name, whole.text)))


def hash_of(text: str) -> str:
    return sha256_text(text)[:HASH]


def check_hash(name: str, text: str) -> None:
    """Refuse the text of a document that does not match its hash."""
    if hash_of(text) != name:
        raise json.JSONDecodeError(f"section {name} does not match its hash", name, 0)


def references_in(text: str) -> list[str]:
    """The hashes of the sections that a text refers to."""
    return _REFERENCE.findall(text)


def without(text: str, lost: Callable[[str], bool]) -> str:
    """The text with a note in place of each lost section."""
    return _REFERENCE.sub(lambda r: f'{{"lost": "{r[1]}"}}' if lost(r[1]) else r[0], text)


class Reader:
    """Decodes texts to documents, in which equal mappings are the same object."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._sections: dict[str, Any] = {}
        """Hash -> section."""
        self._documents: dict[str, Any] = {}
        """Text -> document, for documents that are the same in many trials."""
        self._mappings: dict[tuple[Any, ...], dict[str, Any]] = {}
        """Entries -> mapping."""

    def need(self, texts: Iterable[str], fetch: Callable[[list[str]], Mapping[str, str]]) -> None:
        """Load all sections that these texts refer to; `fetch` returns texts by hash."""
        for kept in (self._texts, self._documents, self._mappings):
            if len(kept) > MAX_CACHED:
                # All at once: the entries of a mapping are marked by other mappings' ids.
                for every in (self._texts, self._sections, self._documents, self._mappings):
                    every.clear()
        while missing := {n for text in texts for n in references_in(text)} - self._texts.keys():
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
            return json.loads(text, object_pairs_hook=self._mapping)
        if text not in self._documents:
            self._documents[text] = json.loads(text)
        return self._documents[text]

    def _mapping(self, pairs: list[tuple[str, Any]]) -> Any:
        """The section that a reference stands for, or the first mapping with the same entries."""
        if len(pairs) == 1:
            name, inner = pairs[0]
            if name == "$" and isinstance(inner, str) and inner in self._texts:
                if inner not in self._sections:
                    self._sections[inner] = self.document(self._texts[inner])
                return self._sections[inner]
            if name.startswith("$$"):
                pairs = [(name[1:], inner)]
        key = tuple([(name, id(v) if type(v) is dict else repr(v)) for name, v in pairs])
        if key not in self._mappings:
            # Names are the same in all trials: one string for each.
            self._mappings[key] = {intern(name): inner for name, inner in pairs}
        return self._mappings[key]
