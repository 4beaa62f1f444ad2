"""Digests of trials, which detect changes to stored rows and samples.

A digest has two parts, `ROW:SAMPLES`. The row's part also covers the samples' part. The large
sections that rows refer to are stored under the hashes of their texts and need none.

Values that equal their column's default are left out, so that a column added by a later version
does not change the digests of existing rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernloom.base.files import sha256_text
from kernloom.store.schema import SAMPLES, TRIALS, Table

DIGEST = "digest"
_LENGTH = 32
_NUMBERS: Mapping[str, Callable[[Any], float]] = {
    "integer": int,
    "float": float,
    "boolean": lambda value: int(bool(value)),
}


class _Columns:
    """The columns of a table that a digest covers."""

    def __init__(self, table: Table, *left_out: str) -> None:
        covered = [column for column in table.columns if column.name not in left_out]
        self.texts = [(c.name, c.default) for c in covered if c.kind not in _NUMBERS]
        self.numbers = [(c.name, _NUMBERS[c.kind]) for c in covered if c.kind in _NUMBERS]


_OF_A_TRIAL = _Columns(TRIALS, DIGEST)
_OF_SAMPLES = _Columns(SAMPLES, "trial", "attempt")


def trial_digest(row: Mapping[Any, Any], samples: Iterable[Mapping[Any, Any]]) -> str:
    """The digest of a trial's row, attempt included, and of its rows of samples."""
    taken = samples_part(samples)
    return f"{_row_part(row, taken)}:{taken}"


def samples_part(samples: Iterable[Mapping[Any, Any]]) -> str:
    """The second part of a digest."""
    ordered = sorted(samples, key=lambda row: row["process"])
    return sha256_text("\n".join(_text(row, _OF_SAMPLES) for row in ordered))[:_LENGTH]


def is_sound(row: Mapping[Any, Any]) -> bool:
    """Whether a trial's row matches its digest; versions before 4 stored none."""
    digest = row[DIGEST]
    if digest == "":
        return True
    try:
        return bool(digest.partition(":")[0] == _row_part(row, digest.partition(":")[2]))
    except (TypeError, ValueError, AttributeError):
        return False  # for example a number instead of a text


def samples_are_sound(digest: str, samples: Sequence[Mapping[Any, Any]]) -> bool:
    """Whether the rows of samples match their trial's digest."""
    try:
        return digest == "" or digest.partition(":")[2] == samples_part(samples)
    except (TypeError, ValueError):
        return False


def _row_part(row: Mapping[Any, Any], samples: str) -> str:
    return sha256_text(f"{samples}\n{_text(row, _OF_A_TRIAL)}")[:_LENGTH]


def _text(row: Mapping[Any, Any], columns: _Columns) -> str:
    """Names and values, preceded by their lengths, so that no two rows have the same text."""
    parts: list[str] = []
    for name, default in columns.texts:
        value = row[name]
        if value != default and value is not None:
            parts += (name, value)
    for name, read in columns.numbers:
        # Databases differ in how they return these values.
        parts += (name, str(read(row[name])))
    lengths = ",".join(map(str, map(len, parts)))
    # Fails for a number instead of a text.
    return f"{lengths}\n{''.join(parts)}"
