"""Reads everything that SQLite can still read of a damaged store, table by table.

SQLite stops at damage, so the rows before it are read at once, and those after it one by one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from kernloom.config.schema import STATUSES
from kernloom.store import schema
from kernloom.store.lookups import Name, name_of
from kernloom.store.rows import FACTS, SHARED, Row, row_is_sound, samples_are_sound, trial_of
from kernloom.store.schema import SAMPLES, TRIALS, Table
from kernloom.store.shared import hash_of, references_in, without
from kernloom.store.sqlite import SqliteConnection, read_any_text

CHANGING = (schema.BASELINES, schema.REUSES, schema.SOURCES)
"""Tables whose rows change and are deleted."""
BEYOND = 20_000
"""Rowids tried after the last readable one of a damaged table."""
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "name": str,
    "text": str,
    "integer": int,
    "float": (int, float),
    "boolean": int,
}


class Readable:
    """All sound rows of a file."""

    def __init__(self, file: Path) -> None:
        self.damaged: set[str] = set()
        """Tables with unreadable or changed rows."""
        self.unread: set[str] = set()
        """Tables with unreadable rows."""
        self.tables: dict[str, set[str]] = {}
        self.passes = False
        """Whether SQLite finds no fault."""
        with closing(sqlite3.connect(file)) as raw:
            read_any_text(raw)
            # Read a truncated file as far as it goes, and trust no length in it.
            raw.execute("PRAGMA writable_schema=ON")
            raw.execute("PRAGMA cell_size_check=ON")
            self._connection = SqliteConnection(raw)
            with suppress(sqlite3.DatabaseError):
                self.tables = self._connection.columns()
                check = self._connection.rows("PRAGMA integrity_check(1)")
                self.passes = check == [{"integrity_check": "ok"}]
            self._read()

    def _read(self) -> None:
        self.meta = {row["key"]: row["value"] for row in self._rows(schema.META)}
        self.trials = {name_of(row): row for row in self._rows(TRIALS, _is_trial)}
        """Trials that match their digests."""
        # Read from the index of the primary key only, which may be sound where a row is not.
        order = "SELECT id, attempt FROM trials ORDER BY id{0}, attempt{0}"
        named, whole = self._some(order.format(""))
        if not whole:
            named += self._some(order.format(" DESC"))[0]
        self.names = set(map(name_of, named))
        """The trials that the index has."""
        documents = self._rows(schema.DOCUMENTS, lambda row: hash_of(row["text"]) == row["hash"])
        self.documents = {row["hash"]: str(row["text"]) for row in documents}
        taken: dict[Name, list[Row]] = {}
        for row in self._rows(SAMPLES):
            taken.setdefault((row["trial"], row["attempt"]), []).append(row)
        self.samples = {
            name: taken.get(name, [])
            for name, row in self.trials.items()
            if samples_are_sound(row["digest"], taken.get(name, []))
        }
        """The samples of each trial that match its digest."""
        self.changing = {
            table: {tuple(row[name] for name in table.names[: table.keys]): row for row in rows}
            for table, rows in ((table, self._rows(table)) for table in CHANGING)
        }
        """The rows of these tables, by their primary keys."""
        self.incomplete = {
            name
            for name, row in self.trials.items()
            if name not in self.samples or with_notes(row, self.documents)
        }
        """Trials that lack samples or sections."""

    @property
    def is_sound(self) -> bool:
        return self.passes and not self.damaged and not self.incomplete

    def _rows(self, table: Table, is_good: Callable[[Row], bool] = lambda row: True) -> list[Row]:
        """The good rows of a table."""
        if table.name not in self.tables:
            return []
        number = "" if table.by_key else "rowid AS its_rowid, "
        select = f"SELECT {number}* FROM {table.name}"  # noqa: S608
        rows, whole = self._some(select)
        if not whole:
            self.unread.add(table.name)
            rows = self._and_after(select, rows) if number else self._by_trial(table, select)
        added = schema.ADDED[table.name]
        complete: list[Row] = [{**added, **row} for row in rows]
        good = [row for row in complete if _fits(row, table) and is_good(row)]
        if not whole or len(good) < len(rows):
            self.damaged.add(table.name)
        return good

    def _and_after(self, select: str, before: list[Row]) -> list[Row]:
        """The rows before and after damage. Rowids are given out in order, so it goes on after the
        last one; or after as many as there were, because that rowid may be damaged, too."""
        found = {row["its_rowid"]: row for row in before}
        for last in {len(found), *list(found)[-1:]}:
            number = last
            while number < last + BEYOND:
                number += 1
                for row in self._some(f"{select} WHERE rowid = ?", [number])[0]:
                    found[number] = row
                    last = number
        return list(found.values())

    def _by_trial(self, table: Table, select: str) -> list[Row]:
        """The rows of a table without rowids."""
        width = 2 if table is SAMPLES else 1
        where = " AND ".join(f"{name} = ?" for name in table.names[:width])
        names = sorted({name[:width] for name in self.names | self.trials.keys()})
        return [r for name in names for r in self._some(f"{select} WHERE {where}", name)[0]]

    def _some(self, statement: str, values: Sequence[Any] = ()) -> tuple[list[Row], bool]:
        """The rows before the first that SQLite cannot read, and whether these are all."""
        rows: list[Row] = []
        try:
            for some in self._connection.chunks(statement, values, 1):
                rows += some
        except sqlite3.DatabaseError:
            return rows, False
        return rows, True


def _fits(row: Row, table: Table) -> bool:
    """Whether a row's values have the types of its table, in valid Unicode."""
    try:
        return all(
            isinstance(value := row[column.name], _TYPES[column.kind])
            and (not isinstance(value, str) or value.isascii() or bool(value.encode()))
            for column in table.columns
        )
    except (KeyError, UnicodeError):
        return False


def _is_trial(row: Row) -> bool:
    """Whether a row matches its digest, or without one, can be read as a trial."""
    try:
        trial_of(row)
        return row["status"] in STATUSES and row_is_sound(row)
    except (ValueError, TypeError, AttributeError):
        return False


def with_notes(row: Row, documents: Mapping[str, str]) -> dict[str, str]:
    """The columns of a trial with missing sections, with a note in place of each."""

    def is_lost(name: str) -> bool:
        return name not in documents or any(map(is_lost, references_in(documents[name])))

    noted = {column: without(row[column], is_lost) for column in (*SHARED, FACTS)}
    return {column: text for column, text in noted.items() if text != row[column]}
