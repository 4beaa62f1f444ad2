"""The names that C texts define at file scope for other files as well.

Two files with the same one cannot be linked, so that each variant of a kernel gets names of its
own. Declarations without a definition are left out: they may be of a library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_LEFT_OUT = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | ^[ \t]*\#(?:[^\n\\]|\\.)*
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_TOKEN = re.compile(r"[A-Za-z_]\w*|[^\s\w]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_ELSEWHERE = {"static", "typedef", "extern", "_Static_assert", "static_assert"}
_WITH_PARENTHESES = {"__attribute__", "__declspec", "_Alignas", "__asm__", "__typeof__", "typeof"}
_KINDS = {"struct", "union", "enum"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def defined_names(text: str) -> set[str]:
    """The functions and variables that a C text defines, without those that are static."""
    found: set[str] = set()
    for declaration, is_function in _declarations(_TOKEN.findall(_LEFT_OUT.sub(" ", text))):
        if _ELSEWHERE.isdisjoint(declaration):
            found |= {_function(declaration)} if is_function else set(_variables(declaration))
    return found - {""}


def _declarations(tokens: Sequence[str]) -> Iterator[tuple[list[str], bool]]:
    """Each declaration at file scope, its brackets as single tokens `()`, `[]` and `{}`; and
    whether it is a function with a body."""
    at, current = 0, list[str]()
    while at < len(tokens):
        part = tokens[at]
        if part in _CLOSING:
            at = _end(tokens, at)
            current.append(part + _CLOSING[part])
            if part == "{" and "()" in current and "=" not in current:
                yield current[:-1], True
                current = []
        elif part == ";":
            yield current, False
            current = []
        else:
            current.append(part)
        at += 1


def _end(tokens: Sequence[str], start: int) -> int:
    """The index of the bracket that closes the one at `start`, or of the last part."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at] == tokens[start]) - (tokens[at] == _CLOSING[tokens[start]])
        if not depth:
            return at
    return len(tokens) - 1


def _plain(declaration: Sequence[str]) -> list[str]:
    """Without attributes and their brackets."""
    return [
        part
        for before, part in zip(("", *declaration), declaration, strict=False)
        if part not in _WITH_PARENTHESES and not (part == "()" and before in _WITH_PARENTHESES)
    ]


def _function(declaration: Sequence[str]) -> str:
    plain = _plain(declaration)
    before = plain[plain.index("()") - 1] if "()" in plain[1:] else ""
    return before if _WORD.fullmatch(before) else ""


def _variables(declaration: Sequence[str]) -> Iterator[str]:
    plain = _plain(declaration)
    name, words, waiting = "", 0, True
    for part in plain:
        if part == "()" and waiting:
            return  # a declaration of a function, or a type that is not understood
        if part == "," or part == "=":
            if waiting and words > 1:
                yield name
            waiting, words = part == ",", max(words, 1)
        elif waiting and _WORD.fullmatch(part):
            name, words = part, words + 1
    if waiting and words > 1 and not (words == 2 and plain[0] in _KINDS):
        yield name
