"""Reads everything that SQLite can still read of a damaged store, table by table.

SQLite stops at damage, so the rows before it are read forwards, those after it backwards, and those
in between by bisecting ranges of rowids until only unreadable rows are left.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kernloom.config.schema import STATUSES
from kernloom.store.digests import DIGEST, is_sound, samples_are_sound
from kernloom.store.lookups import Name, Row
from kernloom.store.rows import FACTS, SHARED, trial_of
from kernloom.store.schema import (
    ADDED,
    BASELINES,
    DOCUMENTS,
    META,
    REUSES,
    SAMPLES,
    SOURCES,
    TRIALS,
    Table,
)
from kernloom.store.shared import hash_of, places_in, without
from kernloom.store.sqlite import SqliteConnection, read_any_text

BEYOND = 10_000
"""Rowids tried after the last readable one, if the end of a table is damaged."""
MOST_RANGES = 200_000
"""Limit of ranges tried per table."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "text": (str,),
    "integer": (int,),
    "float": (int, float),
    "boolean": (int,),
}
_NUMBER = "its_rowid"


class Readable:
    """All sound rows of a file.

    `trials` match their digests, `samples` those of their trials, and `documents` their hashes;
    `incomplete` are trials that lack samples or sections. `names` are the trials that the index
    has.
    """

    def __init__(self, file: Path) -> None:
        self.damaged: set[str] = set()
        """Tables with unreadable or changed rows."""
        self.unread: set[str] = set()
        """Tables with unreadable rows."""
        self.tables: dict[str, set[str]] = {}
        with closing(sqlite3.connect(file)) as raw:
            read_any_text(raw)
            # Read a truncated file as far as it goes, and trust no length in it.
            raw.execute("PRAGMA writable_schema=ON")
            raw.execute("PRAGMA cell_size_check=ON")
            self._connection = SqliteConnection(raw)
            try:
                self.tables = self._connection.columns()
                check = self._connection.rows("PRAGMA integrity_check(1)")
                self.passes = [row["integrity_check"] for row in check] == ["ok"]
            except sqlite3.DatabaseError:
                self.passes = False
            self._read()

    @property
    def is_sound(self) -> bool:
        return self.passes and not self.damaged and not self.incomplete

    def _read(self) -> None:
        self.meta = {row["key"]: row["value"] for row in self._rows(META)}
        rows = self._rows(TRIALS)
        self.trials: dict[Name, Row] = {
            (row["id"], row["attempt"]): row for row in self._kept(TRIALS, rows, is_trial)
        }
        # Read from the index of the primary key only, which may be sound where a row is not.
        order = "SELECT id, attempt FROM trials ORDER BY id{0}, attempt{0}"
        named, whole = self._some(order.format(""))
        if not whole:
            named += self._some(order.format(" DESC"))[0]
        self.names: set[Name] = {(row["id"], row["attempt"]) for row in named}
        self.has_all_trials = TRIALS.name in self.tables and TRIALS.name not in self.unread
        self.samples: dict[Name, list[Row]] = {}
        every = self.names | self.trials.keys()
        for row in self._rows(SAMPLES, every):
            self.samples.setdefault((row["trial"], row["attempt"]), []).append(row)
        documents = self._kept(DOCUMENTS, self._rows(DOCUMENTS), _matches_hash)
        self.documents = {row["hash"]: str(row["text"]) for row in documents}
        self.incomplete = {
            name
            for name, row in self.trials.items()
            if not samples_are_sound(row[DIGEST], self.samples.get(name, []))
        }
        for name in self.incomplete:
            # It is unknown which of them are right.
            self.samples.pop(name, None)
        self.incomplete |= {n for n, row in self.trials.items() if with_notes(row, self.documents)}
        self.baselines = {(row["name"], row["trial"]): row for row in self._rows(BASELINES)}
        self.reuses = {row["trial"]: row for row in self._rows(REUSES)}
        self.sources = {row["trial"]: row for row in self._rows(SOURCES, every)}

    def _kept(self, table: Table, rows: Sequence[Row], is_good: Any) -> list[Row]:
        good = [row for row in rows if is_good(row)]
        if len(good) < len(rows):
            self.damaged.add(table.name)
        return good

    def _rows(self, table: Table, names: Iterable[Name] = ()) -> list[Row]:
        """The rows of a table; a table without rowids is queried by trial."""
        columns = self.tables.get(table.name)
        if columns is None:
            return []
        number = "" if table.by_key else f"rowid AS {_NUMBER}, "
        select = f"SELECT {number}* FROM {table.name}"  # noqa: S608
        rows, whole = self._some(select)
        if not whole:
            self.damaged.add(table.name)
            self.unread.add(table.name)
            rows = self._around(select, rows) if number else self._by_trial(select, columns, names)
        added = ADDED.get(table.name, {})
        return self._kept(table, [{**added, **row} for row in rows], lambda row: fits(row, table))

    def _around(self, select: str, rows: list[Row]) -> list[Row]:
        """The rows before, after and between damage."""
        found = {row[_NUMBER]: row for row in rows}
        low = max(found, default=0) + 1
        after, _ = self._some(f"{select} ORDER BY rowid DESC")
        found |= {row[_NUMBER]: row for row in after}
        pending = deque([(low, min((row[_NUMBER] for row in after), default=low + BEYOND))])
        # Wide ranges first; rowids may be damaged too, and then ranges never end.
        for _ in range(MOST_RANGES):
            if not pending:
                break
            low, high = pending.popleft()
            values = {"low": low, "high": high}
            between = " WHERE rowid >= :low AND rowid < :high ORDER BY rowid"
            rows, whole = self._some(select + between, values)
            found |= {row[_NUMBER]: row for row in rows}
            low = rows[-1][_NUMBER] + 1 if rows else low
            if not whole and high - low > 1:
                middle = (low + high) // 2
                pending += [(low, middle), (middle, high)]
        return [found[number] for number in sorted(found)]

    def _by_trial(self, select: str, columns: set[str], names: Iterable[Name]) -> list[Row]:
        rows: list[Row] = []
        attempted = " AND attempt = :attempt" if "attempt" in columns else ""
        wanted = {(id, attempt if attempted else 0) for id, attempt in names}
        for id, attempt in sorted(wanted):
            values = {"trial": id, "attempt": attempt}
            rows += self._some(f"{select} WHERE trial = :trial{attempted}", values)[0]
        return rows

    def _some(
        self, statement: str, values: Mapping[str, Any] | None = None
    ) -> tuple[list[Row], bool]:
        """The rows before the first that SQLite cannot read, and whether these are all."""
        rows: list[Row] = []
        try:
            for some in self._connection.chunks(statement, values or {}, 1):
                rows += some
        except sqlite3.DatabaseError:
            return rows, False
        return rows, True


def fits(row: Row, table: Table) -> bool:
    """Whether a row's values have the types of its table, in valid Unicode."""
    try:
        return all(
            isinstance(value := row[column.name], _TYPES[column.kind])
            and (not isinstance(value, str) or value.isascii() or bool(value.encode()))
            for column in table.columns
        )
    except (KeyError, UnicodeError):
        return False


def is_trial(row: Row) -> bool:
    """Whether a row matches its digest, or without one, can be read as a trial."""
    try:
        trial_of(row)
        return str(row["status"]) in STATUSES and is_sound(row)
    except (ValueError, TypeError, AttributeError):
        return False


def with_notes(row: Row, documents: Mapping[str, str]) -> dict[str, str]:
    """The columns of a trial with missing sections, with a note in place of each."""

    def is_lost(name: str) -> bool:
        return name not in documents or any(map(is_lost, places_in(documents[name])))

    noted = {column: without(row[column], is_lost) for column in (*SHARED, FACTS)}
    return {column: text for column, text in noted.items() if text != row[column]}


def lacks_samples(row: Row, samples: Sequence[Row]) -> bool:
    """Whether a trial has fewer stored samples than it took."""
    processes = json.loads(row["metrics"]).get("processes", 0)
    fewer = isinstance(processes, int) and len(samples) < processes
    return fewer or not samples_are_sound(row[DIGEST], samples)


def _matches_hash(row: Row) -> bool:
    return bool(hash_of(row["text"]) == row["hash"])
