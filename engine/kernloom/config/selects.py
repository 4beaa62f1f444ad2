"""`${oc.select:KEY}` and `${oc.select:KEY,DEFAULT}` as data, without OmegaConf.

OmegaConf needs the whole config for one of them, which takes longer than the rest of a point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kernloom.base.lookup import MISSING
from kernloom.config.overrides import CONSTANTS

KEY = r"[A-Za-z_][\w.]*"
_DEFAULT = rf"\$\{{{KEY}\}}|[\w.-]+|'[^'\\$]*'"
SELECT = re.compile(rf"\$\{{oc\.select:({KEY})(?:,\s*({_DEFAULT}))?\}}", re.ASCII)
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_FLOAT = re.compile(r"-?(?:0|[1-9]\d*)\.\d+", re.ASCII)
_WORD = re.compile(r"(?!(?:true|false|null|inf|nan)$)[a-z_]\w*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Select:
    """The value of a key, or a default if there is none."""

    key: str
    default: Any = None
    reference: str = ""
    """The key whose value is the default, if it is one."""


def literal(text: str) -> Any:
    """The value of an unquoted argument of a resolver; MISSING if only OmegaConf's parser knows."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text if _WORD.fullmatch(text) else MISSING


def parse_select(match: re.Match[str]) -> Select | None:
    """The parts of a match of SELECT; None if only OmegaConf's parser knows its default."""
    key, text = match[1], match[2]
    if text is None:
        return Select(key)
    if text.startswith("${"):
        return Select(key, reference=text[2:-1])
    default = text[1:-1] if text.startswith("'") else literal(text)
    return None if default is MISSING else Select(key, default)
