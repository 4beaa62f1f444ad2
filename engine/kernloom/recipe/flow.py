"""YAML with one line for each row of a table: short, and readable by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
_SPECIAL = re.compile(r"(?i)true|false|null|yes|no|on|off|nan|inf|y|n")
WIDTH = 100


def flow(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items())
        return "{" + inside + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and not _SPECIAL.fullmatch(value)
        return value if plain else _quoted(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    return json.dumps(value)


def _quoted(text: str) -> str:
    """A text in quotes, in ASCII: YAML has no pairs of surrogates as JSON does."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\U{code:08x}" if code > 0xFFFF else json.dumps(character)[1:-1]


def block(value: Any, depth: int = 1, indent: int = 0) -> Iterator[str]:
    """Lines of a mapping or list: `depth` levels in blocks, each value below them in one line."""
    space = " " * indent
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _opens(item) and depth > 0:
                yield f"{space}{flow(key)}:"
                yield from block(item, depth - 1, indent + (2 if isinstance(item, Mapping) else 0))
            else:
                yield f"{space}{flow(key)}: {flow(item)}"
    else:
        for item in value:
            yield f"{space}- {flow(item)}"


def _opens(value: Any) -> bool:
    """Whether a value is written in a block: a short one fits a line."""
    return bool(isinstance(value, (Mapping, list)) and value and len(flow(value)) > WIDTH // 2)
