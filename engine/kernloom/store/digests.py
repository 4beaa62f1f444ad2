"""Digests of trials: whether a row and its samples are still what was stored.

A digest has two parts, `ROW:SAMPLES`. The part of the row covers the part of the samples, too. The
large sections that rows refer to are kept under the hashes of their texts and need none.

Values that equal their column's default are left out, so a column that a later version adds does
not change the digests of the rows that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernloom.files import sha256_text
from kernloom.store.schema import SAMPLES, TRIALS, Column

DIGEST = "digest"
_LENGTH = 32
_OF_A_TRIAL = tuple(column for column in TRIALS.columns if column.name != DIGEST)
_OF_SAMPLES = tuple(c for c in SAMPLES.columns if c.name not in ("trial", "attempt"))


def trial_digest(row: Mapping[Any, Any], samples: Iterable[Mapping[Any, Any]]) -> str:
    """The digest of the row of a trial, attempt included, and of its rows of samples."""
    taken = samples_part(samples)
    return f"{_row_part(row, taken)}:{taken}"


def samples_part(samples: Iterable[Mapping[Any, Any]]) -> str:
    """The second part of a digest."""
    ordered = sorted(samples, key=lambda row: row["process"])
    return sha256_text("\n".join(_text(row, _OF_SAMPLES) for row in ordered))[:_LENGTH]


def is_sound(row: Mapping[Any, Any]) -> bool:
    """Whether the row of a trial matches its digest; versions before 4 stored none."""
    digest = row[DIGEST]
    if digest == "":
        return True
    try:
        return bool(digest.partition(":")[0] == _row_part(row, digest.partition(":")[2]))
    except (TypeError, ValueError, AttributeError):
        return False  # a number where a text belongs, or the like


def samples_are_sound(digest: str, samples: Sequence[Mapping[Any, Any]]) -> bool:
    """Whether the rows of samples match the digest of their trial."""
    try:
        return digest == "" or digest.partition(":")[2] == samples_part(samples)
    except (TypeError, ValueError):
        return False


def _row_part(row: Mapping[Any, Any], samples: str) -> str:
    return sha256_text(f"{samples}\n{_text(row, _OF_A_TRIAL)}")[:_LENGTH]


def _text(row: Mapping[Any, Any], columns: Sequence[Column]) -> str:
    """Names and values, each with its length: no two rows have the same text."""
    parts = []
    for column in columns:
        value = row[column.name]
        if value is None or value == column.default:
            continue
        # Databases differ in how they return these.
        if column.kind == "boolean":
            value = int(bool(value))
        elif column.kind == "float":
            value = float(value)
        elif column.kind != "integer" and not isinstance(value, str):
            raise TypeError(f"{column.name} is no text")
        text = str(value)
        parts.append(f"{column.name} {len(text)} {text}")
    return "\n".join(parts)
