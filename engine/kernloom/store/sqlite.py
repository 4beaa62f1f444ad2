"""SQLite in particular: how it is opened and made, and what its errors mean."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernloom.base.errors import DamagedError, StoreError
from kernloom.store import versions
from kernloom.store.count_file import CountFile
from kernloom.store.database import NOTHING, PlainConnection
from kernloom.store.log import gap_in
from kernloom.store.schema import META, definitions

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from kernloom.store.versions import Lack

CHECKPOINT_PAGES = 250
"""How long the log may grow: it holds the newest trials, a megabyte of them."""
BUSY_SECONDS = 60.0
"""How long a writer waits for the others; each of them holds the store for about a millisecond."""
DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


_DEFINITIONS = tuple(definitions(name="VARCHAR", by_key="WITHOUT ROWID"))
_COLUMNS = (
    "SELECT tables.name AS its_table, columns.name AS name "
    "FROM main.sqlite_master AS tables, pragma_table_info(tables.name, 'main') AS columns "
    "WHERE tables.type = 'table'"
)


@lru_cache
def _by_position(statement: str) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """The statement with its values in their order: by name, each is looked up for every row."""
    names = re.findall(r":(\w+)", statement)
    return re.sub(r":\w+", "?", statement), lambda row: tuple(map(row.__getitem__, names))


class SqliteConnection:
    """A connection to the file, without anything between."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._wrote = False

    def begin(self) -> None:
        self._wrote = True
        # At once: who reads first and then wants to write may be refused without having waited.
        self._connection.execute("BEGIN IMMEDIATE")

    begin_alone = begin

    def rows(self, statement: str, values: Mapping[str, Any] = NOTHING) -> list[dict[str, Any]]:
        found = self._connection.execute(statement, values or ())
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found]

    def run(self, statement: str, rows: Sequence[Mapping[str, Any]] | None = None) -> int:
        if rows is None:
            return self._connection.execute(statement).rowcount
        text, values_of = _by_position(statement)
        return self._connection.executemany(text, map(values_of, rows)).rowcount

    def columns(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for row in self.rows(_COLUMNS):
            found.setdefault(row["its_table"], set()).add(row["name"])
        return found

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        if self._wrote:
            # SQLite empties the log by itself only where nobody else has the store open.
            with suppress(sqlite3.Error):
                self._connection.rollback()
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._connection.close()


class Sqlite:
    """A store in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self._engine: Engine | None = None
        self._lack: Lack | None = None
        """Of an older store that cannot be brought up."""
        self._count = CountFile(path)
        self._created = ""
        """When the store was made: another one of the same name has other trials."""

    def connect(self) -> PlainConnection:
        # Once is enough: questions are asked while this connection is open, and as long as it is,
        # SQLite recovers nothing from the log and nobody repairs the file.
        if repaired_of(self.path).exists():
            raise self.damaged("its repair was interrupted")
        if self.path.exists():
            self._check_log()
        else:
            self._count.remove()
        return SqliteConnection(self._opened())

    def engine(self) -> Engine:
        if self._engine is None:
            from sqlalchemy import create_engine
            from sqlalchemy.pool import QueuePool

            self._engine = create_engine("sqlite://", creator=self._opened, poolclass=QueuePool)
        return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
        self._engine = None
        self._lack = None
        self._created = ""
        if not wal_of(self.path).exists():
            # The last connection put all of the log into the store.
            self._count.remove()
        self._count.close()

    def _opened(self) -> sqlite3.Connection:
        path = self.path
        uri = path.absolute().as_uri()
        if path.exists() and not os.access(path.parent, os.W_OK) and not wal_of(path).exists():
            # A reader makes two files beside the store; where it cannot, nobody can be writing
            # either.
            uri += "?immutable=1"
        connection = _connected(path, uri)
        try:
            _safely(connection)
            if self._lack is not None:
                _as_if_there(connection.execute, self._lack)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_log(self) -> None:
        """SQLite would make good what it can, and delete the log with the rest."""
        log = wal_of(self.path)
        if not log.exists() or log.stat().st_size == 0:
            return
        if self.path.is_file() and self.path.stat().st_size == 0:
            raise self.damaged("it is empty, and what was last written lies beside it")
        if gap_in(log):
            raise self.damaged(
                f"its log {log.name} is damaged, and what was stored after that place is not read"
            )

    def check_version(self, connection: PlainConnection) -> bool:
        try:
            text = versions.version_of(connection)
        except sqlite3.OperationalError as error:
            names = sorted(connection.columns())
            if not names:
                return False
            if META.name in names and "no such table" in str(error):
                # Somebody has made them since.
                return self.check_version(connection)
            raise StoreError(
                f"{self.name} is a database of something else: it has the tables "
                f"{', '.join(names)}",
                hint="Choose another file with store.path=FILE.",
            ) from None
        if versions.is_older(text, self, "another file with store.path=FILE"):
            self._bring_up(connection)
        return True

    def _bring_up(self, connection: PlainConnection) -> None:
        """An older store that cannot be written is read as if it had what it lacks."""
        try:
            connection.begin_alone()
            versions.bring_up(connection, _DEFINITIONS)
            connection.commit()
        except sqlite3.OperationalError as error:
            if not error_name(error).startswith("SQLITE_READONLY"):
                raise
            connection.rollback()
            self._lack = versions.lack_of(connection)
            _as_if_there(connection.run, self._lack)

    def make_tables(self, connection: PlainConnection) -> None:
        _write_ahead(connection)
        connection.begin_alone()
        versions.make(connection, _DEFINITIONS)
        connection.commit()
        # A log that is lost takes no tables with it.
        connection.run("PRAGMA wal_checkpoint(PASSIVE)")

    def lost(self, connection: PlainConnection) -> int:
        created = self._created_at(connection)
        # In this order: others may be storing trials meanwhile.
        known = self._count.read(created)
        there = _last_trial(connection)
        connection.rollback()
        if known > there:
            self._count.set_to(created, there)
        return max(0, known - there)

    def trial_added(self, connection: PlainConnection) -> None:
        # Asked for by itself: looking into the table would begin another transaction.
        (row,) = connection.rows("SELECT last_insert_rowid() AS number")
        self._count.raise_to(self._created_at(connection), row["number"])

    def _created_at(self, connection: PlainConnection) -> str:
        if not self._created:
            found = connection.rows("SELECT value FROM meta WHERE key = 'created'")
            self._created = found[0]["value"] if found else "unknown"
        return self._created

    def explain(self, error: Exception) -> StoreError | None:
        said = getattr(error, "orig", error)
        if not isinstance(said, sqlite3.Error):
            return None
        name = error_name(said)
        if name.startswith(DAMAGED) or "no such table" in str(said):
            return self.damaged(str(said))
        if name.startswith("SQLITE_FULL"):
            return StoreError(
                f"{self.name} cannot grow: the disk is full",
                hint="Free some space and run again: what was stored is safe, only the rest is "
                "done.",
            )
        if name.startswith("SQLITE_IOERR"):
            return StoreError(
                f"{self.name} cannot be written or read: {said}",
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
            f"{self.name} cannot be used: {said}",
            hint="Check the file, its folder and the free space, or use another store.path=FILE.",
        )

    def damaged(self, why: str) -> DamagedError:
        return DamagedError(
            f"{self.name} is damaged or no store: {why}",
            hint="`kernloom results repair` (with the same store.path=FILE, if one was given) "
            "saves what can still be read and puts a sound store in its place. Or move it away: "
            "a new one is made.",
        )


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def repaired_of(path: Path) -> Path:
    """Where the store that is to replace a damaged one stands until it does."""
    return path.with_name(path.name + ".repaired")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _connected(path: Path, uri: str) -> sqlite3.Connection:
    """A connection to the file that has the store's name when it is made."""
    while True:
        before = _identity(path)
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        if before is None:
            return connection
        try:
            # Waits for whoever repairs the store, and then another file has its name.
            connection.execute("PRAGMA schema_version").fetchone()
        except BaseException:
            connection.close()
            raise
        if _identity(path) == before:
            return connection
        connection.close()


def _safely(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    # Damaged text may be no UTF-8; it must not keep the other rows from being read.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")


def _as_if_there(execute: Callable[[str], object], lack: Lack) -> None:
    """Put what an older store lacks before what it has, for this connection only."""
    for table, columns in lack.columns.items():
        added = ", ".join(f"'{default}' AS {name}" for name, default in columns.items())
        # All of it is ours, from ADDED.
        view = f"SELECT *, {added} FROM main.{table}"  # noqa: S608
        execute(f"CREATE TEMP VIEW {table} AS {view}")
    for missing in lack.tables:
        execute(f"CREATE TEMP TABLE {missing.name} ({', '.join(missing.names)})")


def _last_trial(connection: PlainConnection) -> int:
    """The number of trials: none is ever taken away, and SQLite numbers rows from 1."""
    (row,) = connection.rows("SELECT max(rowid) AS number FROM main.trials")
    return row["number"] or 0


def _write_ahead(connection: PlainConnection) -> None:
    """Switch the file to WAL; SQLite itself does not wait for another process doing the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.run("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error_name(error) != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def error_name(error: BaseException) -> str:
    return getattr(error, "sqlite_errorname", "") or ""
