"""Trials and samples as rows of plain text and numbers, and back.

Each trial has a digest, `ROW:SAMPLES`, which detects changes to its stored row and samples. The
row's part also covers the samples' part. The large sections that rows refer to are stored under the
hashes of their texts and need none. Values that equal their column's default are left out, so that
a column added by a later version does not change the digests of existing rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Any

import kernloom
from kernloom.base.errors import without_password
from kernloom.base.files import sha256_text
from kernloom.measure.trial import Samples, Trial
from kernloom.store.schema import SAMPLES, TRIALS, Table
from kernloom.store.shared import Writer

OWN = (
    *("point", "params", "metrics", "placement", "conditions", "warnings", "overrides"),
    "artifacts",
)
SHARED = ("config", "machine")
"""Documents whose large sections are stored once for all trials that share them."""
DOCUMENTS = (*OWN, *SHARED)
"""Columns that hold JSON; dotted keys refer into them."""
FACTS = "facts"
"""The facts that a trial's id is the hash of: shared as well, but read only on request."""
LISTS = ("artifacts", "warnings", "overrides")
_SAME = (
    *("id", "workload", "target", "status", "verified", "stage", "message", "provider", "seconds"),
    *("created", "stderr"),
)
"""Fields of a trial that are columns of the same name."""
_TAKEN = ("wall_ns", "cpu_ns", "involuntary", "transfer_ns")
_NUMBERS: Mapping[str, Callable[[Any], float]] = {
    "integer": int,
    "float": float,
    "boolean": lambda value: int(bool(value)),
}
_DIGEST = 32
# Created once: json.dumps checks its arguments at every call.
_encode = json.JSONEncoder().encode
_encode_short = json.JSONEncoder(separators=(",", ":")).encode

Row = Mapping[str, Any]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def name_in(config: Mapping[str, Any], group: str, key: str = "name") -> str:
    """`config.GROUP.KEY`, or '' if the config lacks it."""
    chosen = config.get(group)
    return str(chosen.get(key, "")) if isinstance(chosen, Mapping) else str(chosen or "")


def _text(text: str) -> str:
    """Text in valid Unicode, as databases require; a program's output may not be."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def row_of(trial: Trial, writer: Writer) -> tuple[dict[str, Any], dict[str, str]]:
    """A trial's row without attempt and digest, and the sections that it shares with others, by
    their hashes."""
    documents = {
        "config": writer.document(_unsecret(trial.config), "config"),
        "machine": writer.document(trial.machine, "machine"),
        FACTS: writer.document(trial.facts, FACTS),
    }
    row: dict[str, Any] = {
        **{name: getattr(trial, name) for name in _SAME},
        "created": trial.created or now(),
        "case_name": trial.case,
        "arch": name_in(trial.config, "arch"),
        "toolchain": name_in(trial.config, "toolchain"),
        "variant": name_in(trial.config, "target", "variant"),
        "version": kernloom.__version__,
        "message": _text(trial.message),
        "stderr": _text(trial.stderr),
        **{name: _dumped(getattr(trial, name)) for name in OWN},
        **{name: document.text for name, document in documents.items()},
    }
    if "://" in row["overrides"]:
        row["overrides"] = json.dumps([without_password(word) for word in trial.overrides])
    return row, dict(section for document in documents.values() for section in document.sections)


def _dumped(value: Any) -> str:
    return _encode(value) if value else "[]" if isinstance(value, (tuple, list)) else "{}"


def _unsecret(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config without the password of its store."""
    store = config.get("store")
    if not isinstance(store, Mapping) or not store.get("url"):
        return config
    return {**config, "store": {**store, "url": without_password(str(store["url"]))}}


def trial_of(row: Row, decode: Callable[[str], Any] = json.loads) -> Trial:
    """The trial of a row; `decode` resolves shared sections and returns the same document for equal
    texts."""
    documents = {name: decode(row[name]) for name in DOCUMENTS}
    # The names are the same in every trial, so they are stored once in memory.
    documents["metrics"] = {intern(name): v for name, v in documents["metrics"].items()}
    if "placement" in documents["metrics"]:
        # In version 1 of the tables it was part of the metrics.
        placed = documents["metrics"].pop("placement")
        documents["placement"] = documents["placement"] | placed
    documents |= {name: tuple(documents[name]) for name in LISTS}
    fields = {name: row[name] for name in _SAME} | {"verified": bool(row["verified"])}
    return Trial(case=row["case_name"], attempt=row["attempt"], **fields, **documents)


def sample_row(trial: str, process: int, samples: Samples) -> dict[str, Any]:
    """A row of samples without the trial's attempt."""
    row: dict[str, Any] = {"trial": trial, "process": process, "inner_count": samples.inner}
    for name in _TAKEN:
        values = getattr(samples, name)
        row[name] = _encode_short(values) if values else "[]"
    return row


def samples_of(row: Row) -> Samples:
    return Samples(row["inner_count"], *(tuple(json.loads(row[name])) for name in _TAKEN))


class _Covered:
    """The columns of a table that a digest covers."""

    def __init__(self, table: Table, *left_out: str) -> None:
        columns = [column for column in table.columns if column.name not in left_out]
        self._texts = [(c.name, c.default) for c in columns if c.kind not in _NUMBERS]
        self._numbers = [(c.name, _NUMBERS[c.kind]) for c in columns if c.kind in _NUMBERS]

    def text(self, row: Row) -> str:
        """Names and values, preceded by their lengths, so that no two rows have the same text."""
        parts: list[str] = []
        for name, default in self._texts:
            value = row[name]
            if value != default and value is not None:
                parts += (name, value)
        for name, read in self._numbers:
            # Databases differ in how they return these values.
            parts += (name, str(read(row[name])))
        # Fails for a number instead of a text.
        return f"{','.join(map(str, map(len, parts)))}\n{''.join(parts)}"


_OF_A_TRIAL = _Covered(TRIALS, "digest")
_OF_SAMPLES = _Covered(SAMPLES, "trial", "attempt")


def trial_digest(row: Row, samples: Iterable[Row]) -> str:
    """The digest of a trial's row, attempt included, and of its rows of samples."""
    taken = _samples_part(samples)
    return f"{_row_part(row, taken)}:{taken}"


def row_is_sound(row: Row) -> bool:
    """Whether a trial's row matches its digest; versions before 4 stored none."""
    try:
        part, _, samples = row["digest"].partition(":")
        return row["digest"] == "" or bool(part == _row_part(row, samples))
    except (TypeError, ValueError, AttributeError):
        return False  # for example a number instead of a text


def samples_are_sound(digest: str, samples: Iterable[Row]) -> bool:
    """Whether the rows of samples match their trial's digest."""
    try:
        return digest == "" or digest.partition(":")[2] == _samples_part(samples)
    except (TypeError, ValueError):
        return False


def _row_part(row: Row, samples: str) -> str:
    return sha256_text(f"{samples}\n{_OF_A_TRIAL.text(row)}")[:_DIGEST]


def _samples_part(samples: Iterable[Row]) -> str:
    ordered = sorted(samples, key=lambda row: row["process"])
    return sha256_text("\n".join(map(_OF_SAMPLES.text, ordered)))[:_DIGEST]
