"""Texts of a program's sources, with the headers that each may include."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from kernloom.base.errors import ConfigError
from kernloom.base.files import files_below, sha256_text
from kernloom.build.headers import HAS_INCLUDE, included, spliced
from kernloom.build.program import NATIVE

HEADERS = (".h", ".hpp", ".inc", ".def")
_UNIT = "unity-"
"""Begin of the name of a text that includes sources of a folder."""
_OPERAND = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')
_ASKED = re.compile(HAS_INCLUDE + r"(?:_next)?\s*\(\s*([^)\n]+)")
_NEXT = re.compile(r"include_next\b")


def is_unit(path: str) -> bool:
    """Whether a path may be that of a text that includes sources of a folder."""
    return PurePosixPath(path).name.startswith(_UNIT)


class SourceTexts:
    """Files below native/ in some roots; each is read once. The first root that has a file counts,
    a program's own root before others."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._read: dict[str, str] = {}
        self._places: dict[str, Path | None] = {}
        self._next: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        """File and include folders -> what it includes directly."""
        self._headers: list[str] | None = None

    def read(self, path: str) -> str:
        if path not in self._read:
            place = self._place(path) or self._roots[0] / path
            try:
                self._read[path] = place.read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigError(
                    f"{place} cannot be read: {error.strerror}",
                    hint="Mend it, or reinstall Kernloom.",
                ) from None
            except UnicodeDecodeError:
                raise ConfigError(f"{place} is not UTF-8 text") from None
        return self._read[path]

    def unit(self, sources: Sequence[str]) -> str:
        """Path of a text that includes some sources of one folder; no such file exists. It is named
        by its text, since another program may include other sources of the folder."""
        text = "".join(f'#include "{posixpath.basename(source)}"\n' for source in sources)
        path = str(PurePosixPath(sources[0]).with_stem(f"{_UNIT}{sha256_text(text)[:8]}"))
        self._read[path] = text
        return path

    def with_headers(self, source: str, include: Sequence[str]) -> dict[str, str]:
        """A source and the headers below native/ that it may include, directly or not. A header
        that is missed here is missed by the compiler as well: it sees no other files."""
        found: dict[str, str] = {}
        waiting = [source]
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            found[path] = self.read(path)
            key = (path, tuple(include))
            if key not in self._next:
                self._next[key] = tuple(self._included(path, found[path], include))
            waiting += self._next[key]
        return dict(sorted(found.items()))

    def below(self, folder: str) -> dict[str, str]:
        """Path -> text of the headers in a folder."""
        found = {
            path.relative_to(root).as_posix()
            for root in self._roots
            for path in files_below(root / folder, HEADERS)
        }
        return {path: self.read(path) for path in sorted(found)}

    def _included(self, path: str, text: str, include: Sequence[str]) -> Iterator[str]:
        # Then the first file of a name is not the only one.
        every = _NEXT.search(spliced(text)) is not None
        for operand in (*included(text), *_ASKED.findall(spliced(text))):
            name = _OPERAND.match(operand)
            if name is None:
                # Named by a macro: any header may be meant.
                yield from self._all_headers()
                continue
            # Absolute names are outside files, which are in the key by other means.
            beside = [posixpath.dirname(path)] if name[1] else []
            for folder in (*beside, *include):
                candidate = posixpath.normpath(posixpath.join(folder, name[1] or name[2]))
                if candidate.startswith(f"{NATIVE}/") and self._place(candidate):
                    yield candidate
                    if not every:
                        break

    def _place(self, path: str) -> Path | None:
        if path not in self._places:
            candidates = (root / path for root in self._roots)
            self._places[path] = next((place for place in candidates if place.is_file()), None)
        return self._places[path]

    def _all_headers(self) -> list[str]:
        if self._headers is None:
            self._headers = list(self.below(NATIVE))
        return self._headers
