"""The SQLite database: opening, creating, and its errors explained.

SQLite treats a damaged write-ahead log as one whose last commits never happened, and reports
nothing. So every commit of a trial notes the number of trials in a count file beside the store,
which is removed when the log is empty and a backup has all trials. It is not synced: after a power
failure its number may be too low, never too high.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kernloom.base.errors import DamagedError, StoreError, StoreLostError
from kernloom.store import versions
from kernloom.store.backups import Backups
from kernloom.store.database import Connection, Database
from kernloom.store.schema import definitions

CHECKPOINT_PAGES = 250
"""Size limit of the log: it holds the newest trials, a megabyte of them."""
BUSY_SECONDS = 60.0
"""How long a writer waits for others; each holds the store for about a millisecond."""
DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_COUNTS = b"trials of the store of "
_REST = "run again: what was stored is safe, only the rest is done."
_ERRORS = {
    "SQLITE_FULL": ("cannot grow: the disk is full", f"Free some space and {_REST}"),
    "SQLITE_IOERR": (
        "cannot be written or read: {}",
        f"Look for a full disk, a quota or a limit on the size of files, and {_REST}",
    ),
    "SQLITE_READONLY": (
        "cannot be written: it or its folder is read-only",
        "Make both writable, or choose another file with store.path=FILE.",
    ),
    "SQLITE_BUSY": (
        f"was kept locked by another process for {BUSY_SECONDS:.0f} seconds",
        "See who has it open (for instance: fuser FILE), end that and run again.",
    ),
    "": (
        "cannot be used: {}",
        "Check the file, its folder and the free space, or use another store.path=FILE.",
    ),
}
"""How the name of an error begins -> problem and remedy."""


class SqliteConnection(Connection):
    """A connection to the file."""

    # Immediate: a transaction that reads first and then writes may be refused without waiting.
    begins = begins_alone = "BEGIN IMMEDIATE"
    lists_columns = (
        "SELECT tables.name AS table_name, columns.name AS column_name "
        "FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns "
        "WHERE tables.type = 'table'"
    )
    _wrote = False

    def __init__(self, raw: sqlite3.Connection, file: Path | None = None) -> None:
        super().__init__(raw)
        self._file = file
        self._opened = _stat_of(file)
        """The file that was opened; None until there is one."""

    def begin(self, alone: bool = False) -> None:
        super().begin(alone)
        self._wrote = True
        if self._file:
            self._check_file(self._file)

    def _check_file(self, file: Path) -> None:
        """SQLite goes on in a file without a name, where nobody will find the trials."""
        now = _stat_of(file)
        self._opened = self._opened or now
        if now is None or self._opened is None or not os.path.samestat(now, self._opened):
            raise StoreLostError(
                f"{file} was {'replaced' if now else 'deleted or moved'} while it was in use, with "
                "all trials in it",
                hint="If it was moved, move it back. Its newest backup may be beside it "
                f"({file.name}.backup-1): copy that. Then run again.",
            )

    def close(self) -> None:
        if self._wrote:
            # SQLite empties the log by itself only if nobody else has the store open.
            with suppress(sqlite3.Error):
                self.raw.rollback()
                self.raw.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self.raw.close()


class CountFile:
    """The number of trials that a store and its log must hold, as the number of bytes after the
    creation time of the store. Writing the last byte never lowers it, whoever else writes."""

    def __init__(self, store: Path) -> None:
        self._path = count_file_of(store)

    def exists(self) -> bool:
        """Whether there is one of any store; earlier versions wrote another kind."""
        return self._data().startswith(_COUNTS)

    def read(self, created: str) -> int:
        """The number of trials in the store created at that time; 0 if unknown."""
        data, head = self._data(), _head(created)
        return len(data) - len(head) if data.startswith(head) else 0

    def _data(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError:
            return b""

    def write(self, created: str, trials: int) -> None:
        # If it cannot be written, the only consequence is that the loss of a log goes unnoticed.
        head = _head(created)
        with suppress(OSError):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                there = os.pread(file, len(head), 0)
                if there != head:
                    if there:
                        os.ftruncate(file, 0)
                    os.pwrite(file, head, 0)
                if trials:
                    os.pwrite(file, b".", len(head) + trials - 1)
            finally:
                os.close(file)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class Sqlite(Database):
    """A store in a file."""

    elsewhere = "another file with store.path=FILE"
    definitions = tuple(definitions(name="VARCHAR", by_key="WITHOUT ROWID"))

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path
        self._copy: sqlite3.Connection | None = None
        """In-memory copy of an older read-only store, migrated there."""
        self._count = CountFile(path)
        self._backups = Backups(path)
        self._created = ""
        """Creation time of the store: another store of the same name has other trials."""

    def connect(self) -> Connection:
        self._created = ""
        if repaired_of(self.path).exists():
            raise self.damaged("its repair was interrupted")
        if not self.path.exists():
            self._count.remove()
        elif self.path.is_file() and not self.path.stat().st_size and log_size(self.path):
            # SQLite would treat it as a new database and delete the log.
            raise self.damaged("it is empty, and what was last written lies beside it")
        return SqliteConnection(self._opened(), self.path)

    def close(self) -> None:
        copied = self._backups.close()
        if not wal_of(self.path).exists() and copied >= self._count.read(self._created) > 0:
            # The backup has all trials, whatever happens to the store now.
            self._count.remove()
        self._copy = None
        self._created = ""

    def _opened(self) -> sqlite3.Connection:
        if self._copy:
            connection = sqlite3.connect(":memory:", check_same_thread=False)
            self._copy.backup(connection)
            connection.execute("PRAGMA query_only=ON")
        else:
            connection = _connected(self.path)
        read_any_text(connection)
        return connection

    def check_foreign(self, connection: Connection, tables: Sequence[str]) -> None:
        if tables:
            raise StoreError(
                f"{self.name} is a database of something else: it has the tables "
                f"{', '.join(tables)}",
                hint="Choose another file with store.path=FILE.",
            )

    def make_tables(self, connection: Connection) -> None:
        _write_ahead(connection)
        versions.make(connection, self)
        # Checkpoint, so that the loss of a log loses no tables.
        connection.run("PRAGMA wal_checkpoint(PASSIVE)")

    def read_older(self, connection: Connection, error: Exception) -> None:
        """A read-only older store is read from a copy in memory, which can be migrated."""
        if not _error_name(error).startswith("SQLITE_READONLY"):
            raise error
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        connection.raw.backup(copy)
        versions.bring_up(SqliteConnection(copy), self)
        connection.raw.close()
        self._copy = copy
        connection.raw = self._opened()

    def lost(self, connection: Connection) -> int:
        created = self._created_at(connection)
        # In this order, because others may be storing trials meanwhile.
        known = self._count.read(created)
        # Trials are never deleted, and SQLite numbers rows from 1.
        (row,) = connection.rows("SELECT coalesce(max(rowid), 0) AS number FROM trials")
        connection.rollback()
        lost: int = known - row["number"]
        if lost > 0:
            self._count.remove()
            self._count.write(created, row["number"])
        return max(0, lost)

    def trial_added(self, connection: Connection) -> None:
        # Queried alone: a query of the table would begin another transaction.
        (row,) = connection.rows("SELECT last_insert_rowid() AS number")
        created = self._created_at(connection)
        self._count.write(created, row["number"])
        self._backups.added(row["number"], created)

    def distrust(self) -> None:
        self._backups.trusted = False

    def _created_at(self, connection: Connection) -> str:
        if not self._created:
            self._created = versions.meta(connection).get("created", "unknown")
        return self._created

    def explain(self, error: Exception) -> StoreError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        name = _error_name(error)
        if name.startswith(DAMAGED) or "no such table" in str(error):
            return self.damaged(str(error))
        problem, hint = next(_ERRORS[start] for start in _ERRORS if name.startswith(start))
        return StoreError(f"{self.name} {problem.format(error)}", hint=hint)

    def damaged(self, why: str) -> DamagedError:
        return DamagedError(
            f"{self.name} is damaged or no store: {why}",
            hint="`kernloom results repair` (with the same store.path=FILE, if one was given) "
            "saves what can still be read and puts a sound store in its place. Or move it away: "
            "a new one is made.",
        )


def _stat_of(file: Path | None) -> os.stat_result | None:
    try:
        return file.stat() if file else None
    except OSError:
        return None


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def log_size(path: Path) -> int:
    log = wal_of(path)
    return log.stat().st_size if log.exists() else 0


def count_file_of(store: Path) -> Path:
    return store.with_name(store.name + "-count")


def repaired_of(path: Path) -> Path:
    """Temporary path of the store that will replace a damaged one."""
    return path.with_name(path.name + ".repaired")


def read_any_text(connection: sqlite3.Connection) -> None:
    """Accept damaged text that is not UTF-8, so that the other rows can be read."""
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")


def _head(created: str) -> bytes:
    return _COUNTS + f"{created}\n".encode()


def _connected(path: Path) -> sqlite3.Connection:
    """A connection to the file that has the store's name at this moment."""
    uri = path.absolute().as_uri()
    if path.exists() and not os.access(path.parent, os.W_OK) and not wal_of(path).exists():
        # A reader creates two files beside the store; where it cannot, nobody can be writing
        # either.
        uri += "?immutable=1"
    while True:
        before = path.stat() if path.exists() else None
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            # Waits for a running repair, after which another file has the name.
            connection.execute("PRAGMA schema_version").fetchone()
            if before is None or (path.exists() and os.path.samestat(path.stat(), before)):
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()


def _write_ahead(connection: Connection) -> None:
    """Switch the file to WAL; SQLite itself does not wait if another process does the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.run("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if _error_name(error) != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _error_name(error: BaseException) -> str:
    return getattr(error, "sqlite_errorname", "") or ""
