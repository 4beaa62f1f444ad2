"""Input files of a driver's own compiler: the files of a package, and nothing else.

A driver cannot report which files it has read, so sources and options that could reach other files
are refused: a change there would go unnoticed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from kernloom.base.errors import ConfigError
from kernloom.build.headers import check_assembly, spliced

_OPTIONS = ("-cl-", "-D", "-U", "-O", "-W", "-f", "-m", "-g")
_OPTION_WORDS = ("-w",)
_TAKE_NEXT = ("-D", "-U")
_LOADS = ("-fplugin", "-fpass-plugin", "-fmodule", "-fprebuilt-module", "-mllvm")
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?""", re.DOTALL
)
"""Comments and strings; a string may contain the start of a comment. An unterminated string ends
with its line, so that too little rather than too much is taken for a comment."""
_DIRECTIVE = re.compile(
    r"^\s*(?:#|%:)\s*(?:include|import|embed)\b[ \t]*(.*?)[ \t]*$", re.MULTILINE
)
_OUTSIDE = re.compile(
    r"^\s*(?:#|%:)\s*(include_next)\b|\b(__has_(?:include(?:_next)?|embed))\b", re.MULTILINE
)
"""Directives that search other folders, with any operand."""


def check_options(groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse options that make a driver's compiler read files; grouped by config key."""
    for key, words in groups.items():
        # Drivers split options at every space.
        rest = iter(" ".join(words).split())
        for word in rest:
            if word in _TAKE_NEXT:
                next(rest, None)
            elif not _harmless(word):
                raise ConfigError(
                    f"the option '{word}' is refused: the driver's compiler may read files by it, "
                    "whose changes would go unnoticed",
                    key=key,
                    hint=f"Allowed is what starts with {', '.join(_OPTIONS)}, and -w, without a "
                    "path. A kernel includes files by their paths from its own folder.",
                )


def _harmless(word: str) -> bool:
    if word.startswith(_TAKE_NEXT) or word in _OPTION_WORDS:
        return True
    # A comma passes a word to another program, as in -Wp,-include,FILE.
    reaching = word.startswith(_LOADS) or any(sign in word for sign in "/@,")
    return word.startswith(_OPTIONS) and not reaching


def check_sources(files: Mapping[str, str], main: str, folder: str, *, key: str) -> None:
    """Refuse a source that includes other files than `files`. Paths in `main`, and paths not found
    next to the including file, are relative to `folder`, if given."""
    check_assembly(files)
    for path, text in files.items():
        where = folder if path == main else posixpath.dirname(path)
        for operand in _reached(text):
            name = re.fullmatch(r'"([^"]+)"|<([^>]+)>', operand)
            places = [where] if name and name[1] else []
            places += [folder] if folder else []
            inside = {_joined(place, name[1] or name[2]) for place in places} if name else set()
            if not inside & files.keys():
                raise ConfigError(
                    f"{path} reaches a file that is not part of the kernel, {operand}, whose "
                    "changes would go unnoticed",
                    key=key,
                    hint='Allowed is #include "PATH" with a path from the folder of the file that '
                    "includes it, to a file below the same templates folder.",
                )


def _joined(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name))


@lru_cache(maxsize=256)
def _reached(text: str) -> tuple[str, ...]:
    """The operand of each directive that reads or tests for a file."""
    # Only some compilers replace trigraphs.
    readings = dict.fromkeys([spliced(text), spliced(text, trigraphs=False)])
    return tuple(operand for reading in readings for operand in _operands(reading))


def _operands(text: str) -> Iterator[str]:
    # Quotes and comment signs have no meaning in a raw string of C++.
    plain = text if 'R"' in text else _TOKEN.sub(_without_comment, text)
    yield from _DIRECTIVE.findall(plain)
    yield from (found[1] or found[2] for found in _OUTSIDE.finditer(plain))


def _without_comment(found: re.Match[str]) -> str:
    return " " if found[0].startswith("/") else found[0]
