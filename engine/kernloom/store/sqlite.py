"""SQLite in particular: how it is opened and made, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, insert, inspect, select, update
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import QueuePool

import kernloom
from kernloom.errors import StoreError
from kernloom.store.rows import now
from kernloom.store.schema import ADDED, VERSION, meta, metadata

BUSY_SECONDS = 60.0
"""How long a writer waits for the others; each of them holds the store for about a millisecond."""


def connect(path: Path) -> Engine:
    uri = path.absolute().as_uri()
    if path.exists() and not os.access(path.parent, os.W_OK) and not wal_of(path).exists():
        # A reader makes two files beside the store; where it cannot, nobody can be writing either.
        uri += "?immutable=1"

    def opened() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

    engine = create_engine("sqlite://", creator=opened, poolclass=QueuePool)
    event.listen(engine, "connect", _safely)
    return engine


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _safely(connection: Any, record: object) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    # Every checkpoint is a pause of several commits' length; a sweep should meet few of them.
    connection.execute("PRAGMA wal_autocheckpoint=8000")


def check_version(engine: Engine, path: Path) -> bool:
    """Whether the store has its tables; a store this Kernloom cannot read is refused."""
    with engine.connect() as connection:
        try:
            text = connection.scalar(select(meta.c.value).where(meta.c.key == "schema_version"))
        except OperationalError:
            tables = inspect(connection).get_table_names()
            if not tables:
                return False
            raise StoreError(
                f"{path} is a database of something else: it has the tables {', '.join(tables)}",
                hint="Choose another file with store.path=FILE.",
            ) from None
    if text is None or not text.isdigit():
        raise damaged(path, f"its schema version is {text!r}")
    if int(text) > VERSION:
        raise StoreError(
            f"{path} has schema version {text}, newer than {VERSION}, the newest known here",
            hint="Use the Kernloom that wrote it, or another file with store.path=FILE.",
        )
    if int(text) < VERSION:
        _bring_up(engine, int(text))
    return True


def _bring_up(engine: Engine, version: int) -> None:
    """Give an older store what it lacks; one that cannot be written is read as if it had
    them."""
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            stored = select(meta.c.value).where(meta.c.key == "schema_version")
            # Another process may have been faster.
            for table, columns in _lacking(int(connection.scalar(stored) or version)):
                for name, default in columns.items():
                    connection.exec_driver_sql(
                        f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT '{default}'"
                    )
            metadata.create_all(connection)
            connection.execute(
                update(meta).where(meta.c.key == "schema_version").values(value=str(VERSION))
            )
            connection.commit()
    except OperationalError as error:
        if not error_name(error).startswith("SQLITE_READONLY"):
            raise

        def as_if(connection: Any, record: object) -> None:
            for table, columns in _lacking(version):
                added = ", ".join(f"'{default}' AS {name}" for name, default in columns.items())
                # All of it is ours, from ADDED.
                view = f"SELECT *, {added} FROM main.{table}"  # noqa: S608
                connection.execute(f"CREATE TEMP VIEW {table} AS {view}")
            connection.execute("CREATE TEMP TABLE baselines (name TEXT, trial TEXT, created TEXT)")

        event.listen(engine, "connect", as_if)
        engine.dispose()


def _lacking(version: int) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Table and columns that a store of this version is without."""
    for since, tables in ADDED.items():
        if since > version:
            yield from tables.items()


def make_tables(engine: Engine) -> None:
    """Make the tables in one transaction; whoever comes second finds them made."""
    _write_ahead(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        metadata.create_all(connection)
        if connection.scalar(select(meta.c.value).where(meta.c.key == "schema_version")) is None:
            facts = {
                "schema_version": str(VERSION),
                "created": now(),
                "created_by": f"kernloom {kernloom.__version__}",
            }
            connection.execute(
                insert(meta), [{"key": key, "value": value} for key, value in facts.items()]
            )
        connection.commit()


def _write_ahead(engine: Engine) -> None:
    """Switch the file to WAL; SQLite itself does not wait for another process doing the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            return
        except OperationalError as error:
            if error_name(error) != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def error_name(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlite_errorname", "") or ""


def explain(path: Path, error: DBAPIError) -> StoreError:
    """What the database says, as what is wrong with which file and what to do."""
    name = error_name(error)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged(path, str(error.orig))
    if name.startswith("SQLITE_FULL"):
        return StoreError(
            f"{path} cannot grow: the disk is full",
            hint="Free some space and run again: what was stored is safe, only the rest is done.",
        )
    if name.startswith("SQLITE_READONLY"):
        return StoreError(
            f"{path} cannot be written: it or its folder is read-only",
            hint="Make both writable, or choose another file with store.path=FILE.",
        )
    if name.startswith("SQLITE_BUSY"):
        return StoreError(
            f"{path} was kept locked by another process for {BUSY_SECONDS:.0f} seconds",
            hint="See who has it open (for instance: fuser FILE), end that and run again.",
        )
    return StoreError(
        f"{path} cannot be used: {error.orig}",
        hint="Check the file, its folder and the free space, or use another store.path=FILE.",
    )


def damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path} is damaged or no store: {why}",
        hint=f"Move it away and run again: a new one is made. `sqlite3 {path.name} .recover` may "
        "still read trials from the old one.",
    )
