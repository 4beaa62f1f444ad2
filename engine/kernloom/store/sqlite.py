"""SQLite in particular: how it is opened and made, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import QueuePool

from kernloom.errors import StoreError
from kernloom.store import versions
from kernloom.store.schema import VERSION

BUSY_SECONDS = 60.0
"""How long a writer waits for the others; each of them holds the store for about a millisecond."""
DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class Sqlite:
    """A store in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def engine(self) -> Engine:
        path = self.path
        uri = path.absolute().as_uri()
        if path.exists():
            if _is_emptied(path):
                # SQLite would take it for new, and delete the other file.
                raise self.damaged("it is empty, and what was last written lies beside it")
            if not os.access(path.parent, os.W_OK) and not wal_of(path).exists():
                # A reader makes two files beside the store; where it cannot, nobody can be
                # writing either.
                uri += "?immutable=1"

        def opened() -> sqlite3.Connection:
            return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

        engine = create_engine("sqlite://", creator=opened, poolclass=QueuePool)
        event.listen(engine, "connect", _safely)
        return engine

    def begin_alone(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def check_version(self, engine: Engine) -> bool:
        with engine.connect() as connection:
            try:
                text = versions.version_of(connection)
            except OperationalError:
                tables = inspect(connection).get_table_names()
                if not tables:
                    return False
                raise StoreError(
                    f"{self.name} is a database of something else: it has the tables "
                    f"{', '.join(tables)}",
                    hint="Choose another file with store.path=FILE.",
                ) from None
        if text is None or not text.isdigit():
            raise self.damaged(f"its schema version is {text!r}")
        if int(text) > VERSION:
            raise StoreError(
                f"{self.name} has schema version {text}, newer than {VERSION}, the newest known "
                "here",
                hint="Use the Kernloom that wrote it, or another file with store.path=FILE.",
            )
        if int(text) < VERSION:
            self._bring_up(engine, int(text))
        return True

    def _bring_up(self, engine: Engine, version: int) -> None:
        """An older store that cannot be written is read as if it had what it lacks."""
        try:
            with engine.connect() as connection:
                self.begin_alone(connection)
                versions.bring_up(connection)
                connection.commit()
        except OperationalError as error:
            if not error_name(error).startswith("SQLITE_READONLY"):
                raise

            def as_if(connection: Any, record: object) -> None:
                for table, columns in versions.lacking(version):
                    added = ", ".join(f"'{default}' AS {name}" for name, default in columns.items())
                    # All of it is ours, from ADDED.
                    view = f"SELECT *, {added} FROM main.{table}"  # noqa: S608
                    connection.execute(f"CREATE TEMP VIEW {table} AS {view}")
                connection.execute(
                    "CREATE TEMP TABLE baselines (name TEXT, trial TEXT, created TEXT)"
                )
                connection.execute("CREATE TEMP TABLE documents (hash TEXT, text TEXT)")
                connection.execute("CREATE TEMP TABLE reuses (trial TEXT, times INTEGER)")

            event.listen(engine, "connect", as_if)
            engine.dispose()

    def make_tables(self, engine: Engine) -> None:
        _write_ahead(engine)
        with engine.connect() as connection:
            self.begin_alone(connection)
            versions.make(connection)
            connection.commit()

    def explain(self, error: DBAPIError) -> StoreError:
        name = error_name(error)
        if name.startswith(DAMAGED):
            return self.damaged(str(error.orig))
        if name.startswith("SQLITE_FULL"):
            return StoreError(
                f"{self.name} cannot grow: the disk is full",
                hint="Free some space and run again: what was stored is safe, only the rest is "
                "done.",
            )
        if name.startswith("SQLITE_IOERR"):
            return StoreError(
                f"{self.name} cannot be written or read: {error.orig}",
                hint="Look for a full disk, a quota or a limit on the size of files, and run "
                "again: what was stored is safe, only the rest is done.",
            )
        if name.startswith("SQLITE_READONLY"):
            return StoreError(
                f"{self.name} cannot be written: it or its folder is read-only",
                hint="Make both writable, or choose another file with store.path=FILE.",
            )
        if name.startswith("SQLITE_BUSY"):
            return StoreError(
                f"{self.name} was kept locked by another process for {BUSY_SECONDS:.0f} seconds",
                hint="See who has it open (for instance: fuser FILE), end that and run again.",
            )
        return StoreError(
            f"{self.name} cannot be used: {error.orig}",
            hint="Check the file, its folder and the free space, or use another store.path=FILE.",
        )

    def damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self.name} is damaged or no store: {why}",
            hint="`kernloom results repair` (with the same store.path=FILE, if one was given) "
            "saves what can still be read and puts a sound store in its place. Or move it away: "
            "a new one is made.",
        )


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _is_emptied(path: Path) -> bool:
    wal = wal_of(path)
    return path.is_file() and path.stat().st_size == 0 and wal.exists() and wal.stat().st_size > 0


def _safely(connection: Any, record: object) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    # Every checkpoint is a pause of several commits' length; a sweep should meet few of them.
    connection.execute("PRAGMA wal_autocheckpoint=8000")


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
