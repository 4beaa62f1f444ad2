"""What version of the tables a store has, how they are made, and how older ones are brought up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, insert, select, update

import kernloom
from kernloom.store.rows import now
from kernloom.store.schema import ADDED, VERSION, meta, metadata

_STORED = select(meta.c.value).where(meta.c.key == "schema_version")


def version_of(connection: Connection) -> str | None:
    """As it is written in the store."""
    return connection.scalar(_STORED)


def make(connection: Connection) -> None:
    """Make the tables; whoever comes second finds them made."""
    metadata.create_all(connection)
    if version_of(connection) is None:
        facts = {
            "schema_version": str(VERSION),
            "created": now(),
            "created_by": f"kernloom {kernloom.__version__}",
        }
        connection.execute(
            insert(meta), [{"key": key, "value": value} for key, value in facts.items()]
        )


def bring_up(connection: Connection) -> None:
    """Give an older store what it lacks; another process may have been faster."""
    for table, columns in lacking(int(version_of(connection) or VERSION)):
        for name, default in columns.items():
            connection.exec_driver_sql(
                f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT '{default}'"
            )
    metadata.create_all(connection)
    connection.execute(
        update(meta).where(meta.c.key == "schema_version").values(value=str(VERSION))
    )


def lacking(version: int) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Table and columns that a store of this version is without."""
    for since, tables in ADDED.items():
        if since > version:
            yield from tables.items()
