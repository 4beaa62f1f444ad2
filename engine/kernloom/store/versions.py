"""The version of a store's tables: creation, and migration of older ones."""

from __future__ import annotations

import kernloom
from kernloom.base.errors import StoreError
from kernloom.store.database import Connection, Database
from kernloom.store.lookups import sample_rows
from kernloom.store.rows import now, trial_digest
from kernloom.store.schema import ADDED, META, TABLES, VERSION

_WITHOUT_DIGEST = (
    "SELECT * FROM trials WHERE digest = '' AND (id, attempt) > (?, ?) "
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
        raise newer(
            database.name, version, f"Use the Kernloom that wrote it, or {database.elsewhere}."
        )
    if int(version) < VERSION:
        try:
            bring_up(connection, database)
        except Exception as error:
            connection.rollback()
            database.read_older(connection, error)
    connection.rollback()
    return True


def newer(name: object, version: str, hint: str) -> StoreError:
    known = f"newer than {VERSION}, the newest known here"
    return StoreError(f"{name} has schema version {version}, {known}", hint=hint)


def meta(connection: Connection) -> dict[str, str]:
    """Facts about the store itself."""
    return {row["key"]: row["value"] for row in connection.rows("SELECT key, value FROM meta")}


def set_meta(connection: Connection, **facts: str) -> None:
    rows = [{"key": key, "value": value} for key, value in facts.items()]
    connection.insert(META, rows, " ON CONFLICT (key) DO UPDATE SET value = excluded.value")


def make(connection: Connection, database: Database) -> None:
    """Create the tables; a second process finds them created."""
    connection.begin(alone=True)
    for definition in database.definitions:
        connection.run(definition)
    if "schema_version" not in meta(connection):
        made_by = f"kernloom {kernloom.__version__}"
        set_meta(connection, schema_version=str(VERSION), created=now(), created_by=made_by)
    connection.commit()


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
    last = ("", 0)
    while rows := connection.rows(_WITHOUT_DIGEST, last):
        # Digests of the rows as they are.
        taken = sample_rows(connection, [(row["id"], row["attempt"]) for row in rows])
        for row in rows:
            last = (row["id"], row["attempt"])
            update = "UPDATE trials SET digest = ? WHERE id = ? AND attempt = ?"
            connection.run(update, (trial_digest(row, taken[last]), *last))
    set_meta(connection, schema_version=str(VERSION))
    connection.commit()
