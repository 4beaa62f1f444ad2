"""The version of a store's tables: creation, and migration of older ones."""

from __future__ import annotations

from typing import Any

import kernloom
from kernloom.base.errors import StoreError
from kernloom.store.database import Connection, Database
from kernloom.store.digests import trial_digest
from kernloom.store.lookups import sample_rows
from kernloom.store.rows import now
from kernloom.store.schema import ADDED, META, TABLES, VERSION, insert_into

_WITHOUT_DIGEST = (
    "SELECT * FROM trials WHERE digest = '' AND (id, attempt) > (:id, :attempt) "
    "ORDER BY id, attempt LIMIT 200"
)


def check(connection: Connection, database: Database) -> bool:
    """Whether the tables exist. Migrates older ones; refuses a store that this Kernloom cannot
    read, and a database of something else."""
    tables = connection.columns()
    if META.name not in tables:
        database.check_foreign(connection, sorted(tables))
        return False
    version = meta(connection).get("schema_version", "none")
    if not version.isdigit():
        raise database.damaged(f"its schema version is {version!r}")
    if int(version) > VERSION:
        raise StoreError(
            f"{database.name} has schema version {version}, newer than {VERSION}, the newest "
            "known here",
            hint=f"Use the Kernloom that wrote it, or {database.elsewhere}.",
        )
    if int(version) < VERSION:
        try:
            bring_up(connection, database)
        except Exception as error:
            connection.rollback()
            database.read_older(connection, error)
    connection.rollback()
    return True


def meta(connection: Connection) -> dict[str, str]:
    """Facts about the store itself."""
    return {row["key"]: row["value"] for row in connection.rows("SELECT key, value FROM meta")}


def make(connection: Connection, database: Database) -> None:
    """Create the tables; a second process finds them created."""
    connection.begin(alone=True)
    for definition in database.definitions:
        connection.run(definition)
    if "schema_version" not in meta(connection):
        set_meta(
            connection,
            schema_version=str(VERSION),
            created=now(),
            created_by=f"kernloom {kernloom.__version__}",
        )
    connection.commit()


def set_meta(connection: Connection, **facts: str) -> None:
    rows = [{"key": key, "value": value} for key, value in facts.items()]
    replace = " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    connection.run(insert_into(META) + replace, rows)


def is_complete(connection: Connection) -> bool:
    """Whether the tables have all columns, whatever their version says."""
    there = connection.columns()
    return all(set(table.names) <= there.get(table.name, set()) for table in TABLES)


def bring_up(connection: Connection, database: Database) -> None:
    """Add the tables, columns and digests that an older store lacks. One version number has had
    several shapes of the tables, and another process may already have migrated it."""
    connection.begin(alone=True)
    there = connection.columns()
    for table, columns in ADDED.items():
        for name, default in columns.items():
            if name not in there.get(table, {name}):
                connection.run(
                    f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT '{default}'"
                )
    for definition in database.definitions:
        connection.run(definition)
    _add_digests(connection)
    set_meta(connection, schema_version=str(VERSION))
    connection.commit()


def _add_digests(connection: Connection) -> None:
    """Compute digests for trials without one, from their rows as they are."""
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
