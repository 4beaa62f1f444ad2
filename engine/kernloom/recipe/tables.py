"""Tables of a lock, in which equal values are written once and referred to by their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernloom.base.files import canonical_json

BASE, SET = "base", "set"
"""Keys of a section that is written as the changes to an earlier one."""


class Table:
    """Distinct values in the order of their first use."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        key = canonical_json(value)
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            self.rows.append(value)
        return self._numbers[key]


class Sections:
    """The values of one config section; a value much like an earlier one is written as changes."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[str, int] = {}
        self._whole: list[tuple[int, Any]] = []

    def number(self, value: Any) -> int:
        key = canonical_json(value)
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            self.rows.append(self._shortest(value, key))
        return self._numbers[key]

    def _shortest(self, value: Any, text: str) -> Any:
        best, length = {"is": value}, len(text) // 2
        for number, other in self._whole:
            changes = changes_to(other, value)
            if changes is None:
                continue
            row = {BASE: number, SET: changes}
            size = len(canonical_json(row))
            if size < length:
                best, length = row, size
        if BASE not in best:
            self._whole.append((len(self.rows), value))
        return best


def section_in(rows: list[Any], number: int) -> Any:
    """A section from its row, with the changes of later rows applied."""
    row = rows[number]
    if "is" in row:
        return row["is"]
    base = rows[row[BASE]]
    return changed(base["is"], row[SET])


def changes_to(old: Any, new: Any) -> dict[str, Any] | None:
    """Nested keys with new values; None if a key is gone, which changes cannot say."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or old.keys() - new.keys():
        return None
    found: dict[str, Any] = {}
    for key, value in new.items():
        if key in old and canonical_json(old[key]) == canonical_json(value):
            continue
        inner = None
        if isinstance(value, Mapping) and isinstance(old.get(key), Mapping):
            inner = changes_to(old[key], value)
            if inner is None:
                return None
        found[key] = value if inner is None else inner
    return found


def changed(old: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with changes applied."""
    result = dict(old)
    for key, value in changes.items():
        inner = result.get(key)
        both = isinstance(value, Mapping) and isinstance(inner, Mapping)
        result[key] = changed(inner, value) if both else value
    return result
