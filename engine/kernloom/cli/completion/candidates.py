"""What a shell is offered for the word under the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["word", "more", "files", "yaml"]
"""`word`: a whole word, a space may follow; `more`: the beginning of one, such as `workload=`.
`files`, `yaml`: names of files, or of YAML files only, which the shell appends to the text."""

_UNQUOTED = re.compile(r"[\w.,=+~:@/%\[\]-]*")
"""Text that no shell needs quotes for."""
_LONGEST_ABOUT = 80


@dataclass(frozen=True)
class Candidate:
    """A text for the word under the cursor."""

    text: str
    kind: Kind = "word"
    about: str = ""

    def line(self) -> str:
        """The candidate as a line for the scripts of the shells."""
        about = " ".join(self.about.split())[:_LONGEST_ABOUT]
        return f"{self.kind} {self.text}\t{about}" if about else f"{self.kind} {self.text}"

    def after(self, text: str) -> Candidate:
        """The candidate for a word of which this is only the end."""
        return replace(self, text=text + self.text)


def files_after(text: str = "", *, yaml: bool = False) -> list[Candidate]:
    return [Candidate(text, "yaml" if yaml else "files")]


def chosen_from(names: Iterable[Any], typed: str) -> list[Candidate]:
    """Names as values of a key or flag. After a comma, those that are not in the list yet."""
    before, comma, _ = typed.rpartition(",")
    named = before.split(",")
    return [
        Candidate(f"{before}{comma}{name}") for name in map(spelled, names) if name not in named
    ]


def listed_from(names: Iterable[Any], typed: str) -> list[Candidate]:
    """Names as elements of a list in brackets, of which the first may be typed already."""
    inside = chosen_from(names, typed.removeprefix("["))
    return [replace(candidate, kind="more").after("[") for candidate in inside]


def shown_to(shell: str, candidates: Iterable[Candidate], typed: str) -> list[Candidate]:
    """Each candidate once, without those that would need quotes. Bash takes everything it is given
    for a match; the other shells match by themselves, in the way that their users prefer."""
    quoted = typed[: typed.rfind(" ") + 1]
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        plain = _UNQUOTED.fullmatch(candidate.text.removeprefix(quoted))
        matches = shell != "bash" or candidate.text.startswith(typed)
        if (plain and matches) or candidate.kind in ("files", "yaml"):
            found.setdefault(candidate.text, candidate)
    return list(found.values())


def spelled(value: Any) -> str:
    """A value as it is typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)
