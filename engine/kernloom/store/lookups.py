"""Reads trials and samples, each checked against its digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kernloom.config.renamed import with_current_keys
from kernloom.measure.trial import Samples, Trial
from kernloom.store.database import Connection
from kernloom.store.rows import (
    SHARED,
    Row,
    row_is_sound,
    samples_are_sound,
    samples_of,
    trial_of,
)
from kernloom.store.shared import Reader

CHUNK = 500
"""Number of rows in memory at a time, and of names per statement."""

_Item = TypeVar("_Item")
Name = tuple[str, int]
"""Id and attempt of a trial."""
NEWEST = (
    # Also reads a row that the index lacks or has under another id: one of the two is damaged.
    "attempt = coalesce((SELECT max(attempt) FROM trials AS other WHERE other.id = trials.id), "
    "attempt)"
)
_NAMED = "FROM {} JOIN trials ON id = wanted.column1 AND attempt = wanted.column2"


@dataclass(frozen=True)
class SourceUse:
    """Kernel sources that trials were planned from, and the times of use."""

    document: str
    """The hash by which trials refer to it."""
    files: Mapping[str, Mapping[str, str]]
    """Kernel and family of sources -> path -> hash."""
    first: str
    """Time of its first trial."""
    last: str
    """Time of its last trial or cache hit."""


class Lookups:
    """Reads a store; sections that trials share are fetched and decoded once.

    Trials that do not match their digests are left out; `damaged` receives their names.
    """

    def __init__(
        self, connection: Connection, reader: Reader, damaged: Callable[[Sequence[Name]], None]
    ) -> None:
        self.connection = connection
        self._reader = reader
        self._damaged = damaged

    def document(self, text: str) -> Any:
        """The document of a text, with the names that keys have now."""
        return with_current_keys(self._reader.document(text))

    def trials(self, rows: Iterable[Row]) -> list[Trial]:
        """The trials of these rows, if rows and samples match their digests."""
        found = {name_of(row): row for row in rows}
        taken = sample_rows(self.connection, found)
        bad = [
            name
            for name, row in found.items()
            if not row_is_sound(row) or not samples_are_sound(row["digest"], taken[name])
        ]
        self._report(bad)
        sound = [row for name, row in found.items() if name not in bad]
        self.need(sound)
        return [trial_of(row, self.document) for row in sound]

    def named(self, names: Sequence[Name]) -> list[Trial]:
        """The trials with these names, in this order."""
        statement = f"SELECT trials.* {_NAMED}"
        rows = {name_of(row): row for row in rows_for(self.connection, statement, names)}
        # Trials are never deleted, so a missing one has another name in its row or in the index.
        self._report([name for name in names if name not in rows])
        return self.trials(rows[name] for name in names if name in rows)

    def samples(self, names: Iterable[Name]) -> dict[Name, tuple[Samples, ...]]:
        """The samples of each process of these attempts."""
        wanted = list(dict.fromkeys(names))
        taken = sample_rows(self.connection, wanted)
        statement = f"SELECT id, attempt, digest {_NAMED}"
        rows = list(rows_for(self.connection, statement, wanted))
        bad = [r for r in rows if not samples_are_sound(r["digest"], taken[name_of(r)])]
        self._report([name_of(row) for row in bad])
        sound = [name_of(row) for row in rows if row not in bad]
        return {name: tuple(map(samples_of, taken[name])) for name in sound if taken[name]}

    def need(self, rows: Iterable[Row], columns: Sequence[str] = SHARED) -> None:
        """Fetch the sections that the documents of these rows refer to."""
        texts = (row[name] for row in rows for name in columns if name in row)
        self._reader.need(texts, self._sections)

    def _sections(self, hashes: Sequence[str]) -> dict[str, str]:
        statement = "SELECT hash, text FROM {} JOIN documents ON hash = wanted.column1"
        rows = rows_for(self.connection, statement, [(name,) for name in hashes])
        return {row["hash"]: row["text"] for row in rows}

    def _report(self, names: Sequence[Name]) -> None:
        if names:
            self._damaged(sorted(names))


def name_of(row: Row) -> Name:
    return row["id"], row["attempt"]


def sample_rows(connection: Connection, names: Iterable[Name]) -> dict[Name, list[Row]]:
    """The rows of samples of these attempts, in the order of their processes."""
    found: dict[Name, list[Row]] = {name: [] for name in names}
    statement = (
        "SELECT samples.* FROM {} "
        "JOIN samples ON trial = wanted.column1 AND attempt = wanted.column2 ORDER BY process"
    )
    for row in rows_for(connection, statement, found):
        found[row["trial"], row["attempt"]].append(row)
    return found


def rows_for(
    connection: Connection, statement: str, names: Iterable[tuple[Any, ...]]
) -> Iterator[dict[str, Any]]:
    """The rows of a statement for each of these names: `{}` stands for a table `wanted` of them,
    with the columns `column1`, `column2`. (Not IN: SQLite would scan a table to find pairs.)"""
    for some in batches(list(dict.fromkeys(names))):
        marks = f"({', '.join('?' * len(some[0]))})"
        table = f"(VALUES {', '.join([marks] * len(some))}) AS wanted"
        values = [value for name in some for value in name]
        yield from connection.rows(statement.format(table), values)


def batches(names: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (names[start : start + CHUNK] for start in range(0, len(names), CHUNK))
