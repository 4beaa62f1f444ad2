"""Makes control characters visible in text that people read.

Names and messages come from recipes, projects, compilers and kernels. A terminal would execute the
escape sequences in them, and a bidirectional override would reorder the line around it.
"""

from __future__ import annotations

import io
import re
from typing import Any, TextIO

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls
    "\u2028\u2029]"  # line and paragraph separators
)
_FIRST_LONG = 0x7F
"""From DEL on the escape is JSON's: the json module does not escape DEL, and JSON printed through
this stream must stay JSON."""


def visible(text: str) -> str:
    """The text with `\\x1b` for each escape character, `\\u202e` for an override, and so on."""
    return _CONTROL.sub(_spelled, text)


def visible_line(text: str) -> str:
    """The same for text that must stay on one line: a name with a newline cannot forge another."""
    return visible(text).replace("\n", "\\x0a")


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code >= _FIRST_LONG else f"\\x{code:02x}"


class VisibleText(io.TextIOWrapper):
    """A text stream that escapes control characters.

    All printed text passes here, so callers need not track where a text came from.
    """

    def write(self, text: str, /) -> int:
        super().write(visible(text))
        return len(text)

    def write_styled(self, text: str) -> int:
        """Write text that contains Kernloom's own escape sequences."""
        return super().write(text)


class _Styled:
    """The stream without escaping, for colours and cursor movements.

    Callers apply `visible` to all text that is not their own.
    """

    def __init__(self, stream: VisibleText) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write_styled(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def styled(stream: TextIO) -> TextIO:
    """The stream for text that was made visible first and styled then."""
    return _Styled(stream) if isinstance(stream, VisibleText) else stream  # type: ignore[return-value]


def exact(stream: TextIO) -> TextIO:
    """The stream for data: control characters stay as they are, except on a terminal."""
    return stream if stream.isatty() else styled(stream)
