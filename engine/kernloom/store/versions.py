"""What version of the tables a store has, how they are made, and how older ones are brought up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import kernloom
from kernloom.base.errors import StoreError
from kernloom.store.database import Database, PlainConnection
from kernloom.store.digests import trial_digest
from kernloom.store.lookups import sample_rows
from kernloom.store.rows import now
from kernloom.store.schema import ADDED, META, TABLES, VERSION, Table, insert_into

_WITHOUT_DIGEST = (
    "SELECT * FROM trials WHERE digest = '' AND (id, attempt) > (:id, :attempt) "
    "ORDER BY id, attempt LIMIT 200"
)


def version_of(connection: PlainConnection) -> str | None:
    """As it is written in the store."""
    found = connection.rows("SELECT value FROM meta WHERE key = 'schema_version'")
    return found[0]["value"] if found else None


def is_older(text: str | None, database: Database, instead: str) -> bool:
    """Whether a store of this version has to be brought up; what nobody can read is refused."""
    if text is None or not text.isdigit():
        raise database.damaged(f"its schema version is {text!r}")
    if int(text) > VERSION:
        raise StoreError(
            f"{database.name} has schema version {text}, newer than {VERSION}, the newest known "
            "here",
            hint=f"Use the Kernloom that wrote it, or {instead}.",
        )
    return int(text) < VERSION


def make(connection: PlainConnection, definitions: Iterable[str]) -> None:
    """Make the tables; whoever comes second finds them made."""
    for definition in definitions:
        connection.run(definition)
    if version_of(connection) is None:
        facts = {
            "schema_version": str(VERSION),
            "created": now(),
            "created_by": f"kernloom {kernloom.__version__}",
        }
        rows = [{"key": key, "value": value} for key, value in facts.items()]
        connection.run(insert_into(META), rows)


@dataclass(frozen=True)
class Lack:
    """What an older store is without."""

    columns: Mapping[str, Mapping[str, str]]
    """Table -> column -> what older rows have there."""
    tables: tuple[Table, ...]

    def __bool__(self) -> bool:
        return bool(self.columns or self.tables)


def lack_of(connection: PlainConnection) -> Lack:
    """Seen from the tables themselves: one number has stood for several shapes of them."""
    there = connection.columns()
    columns = {
        table: {name: text for name, text in added.items() if name not in there[table]}
        for table, added in ADDED.items()
        if table in there
    }
    tables = tuple(table for table in TABLES if table.name not in there)
    return Lack({table: names for table, names in columns.items() if names}, tables)


def bring_up(connection: PlainConnection, definitions: Iterable[str]) -> None:
    """Give an older store what it lacks; another process may have been faster."""
    for table, columns in lack_of(connection).columns.items():
        for name, default in columns.items():
            connection.run(
                f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT '{default}'"
            )
    for definition in definitions:
        connection.run(definition)
    _add_digests(connection)
    connection.run(
        "UPDATE meta SET value = :version WHERE key = 'schema_version'", [{"version": str(VERSION)}]
    )


def _add_digests(connection: PlainConnection) -> None:
    """Give trials that have no digest the one of their rows as they are."""
    last: dict[str, Any] = {"id": "", "attempt": 0}
    while rows := connection.rows(_WITHOUT_DIGEST, last):
        names = [(row["id"], row["attempt"]) for row in rows]
        taken = sample_rows(connection, names)
        digests = [
            {"id": name[0], "attempt": name[1], "digest": trial_digest(row, taken[name])}
            for name, row in zip(names, rows, strict=True)
        ]
        connection.run(
            "UPDATE trials SET digest = :digest WHERE id = :id AND attempt = :attempt", digests
        )
        last = {"id": names[-1][0], "attempt": names[-1][1]}
