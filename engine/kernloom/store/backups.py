"""Backups of a SQLite store, made by SQLite itself: two generations beside the store.

A backup replaces an older one only after SQLite has checked it, and only if it has all trials of
the older one, unchanged: the backup of a damaged store replaces nothing.
"""

from __future__ import annotations

import glob
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from kernloom.store.schema import SAMPLES, TRIALS

GENERATIONS = 2
NEW_TRIALS, NEW_SHARE = 100, 0.5
"""A backup is due when the last one lacks so many trials and such a share of all: the copy then
costs little per trial, however large the store is."""
SMALL = 1 << 20
AGE_S = 3600.0
"""At its end a run backs up any new trial if the store is no larger, or the last backup older."""


def backups_of(store: Path) -> list[Path]:
    """Paths of the backups, newest first; any may be missing."""
    return [store.with_name(f"{store.name}.backup-{n + 1}") for n in range(GENERATIONS)]


class Backups:
    """Decides when to back up a store, and does it."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._last = backups_of(store)[0]
        self._trials = 0
        """Trials in the store, once this run has added some."""
        self._copied = self._tried = 0
        """Trials in the last backup, and in the store when a backup was last tried."""
        self.trusted = True
        """Whether nothing in the store was found damaged."""

    def added(self, trials: int, created: str) -> None:
        """Called after a trial was added to the store created at that time; `trials` is the new
        total."""
        if not self._trials:
            self._copied = _trials_in(self._last, created)
        self._trials = trials
        if trials - max(self._copied, self._tried) >= max(NEW_TRIALS, trials * NEW_SHARE):
            self.make()

    def close(self) -> int:
        """Called when a run ends; returns the number of trials known to be in the last backup."""
        if self._trials > self._copied and (_is_small(self._store) or _is_old(self._last)):
            self.make()
        self._trials = self._tried = 0
        return self._copied

    def make(self) -> None:
        """Back up the store, unless it is damaged or the disk is full."""
        self._tried = self._trials
        fresh = self._store.with_name(f"{self._store.name}.backup-{os.getpid()}.new")
        with suppress(OSError, sqlite3.Error):
            try:
                if self.trusted and _copy(self._store, fresh):
                    names = [fresh, *backups_of(self._store)]
                    for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
                        if newer.exists():
                            newer.replace(older)
                    self._copied = self._trials
            finally:
                fresh.unlink(missing_ok=True)
            for file in self._store.parent.glob(f"{glob.escape(self._store.name)}.backup-*.new*"):
                # Left by a process that was killed while writing it.
                if _is_old(file):
                    file.unlink(missing_ok=True)


def _is_small(store: Path) -> bool:
    try:
        return store.stat().st_size <= SMALL
    except OSError:
        return False


def _is_old(backup: Path) -> bool:
    """Whether a backup is old or missing; another process may be replacing it right now."""
    try:
        return time.time() - backup.stat().st_mtime > AGE_S
    except OSError:
        return True


def _copy(store: Path, fresh: Path) -> bool:
    """Copy a store; returns whether the copy is sound and has all trials of the last backup."""
    last = backups_of(store)[0]
    with (
        # Not created if somebody has removed it.
        closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=rw", uri=True)) as source,
        closing(sqlite3.connect(fresh.absolute().as_uri(), uri=True)) as copy,
    ):
        # The copy counts only when complete, and is synced once then.
        copy.execute("PRAGMA synchronous=OFF")
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
        if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            return False
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        if not last.exists():
            return True
        copy.execute("SELECT id FROM trials LIMIT 1")
        try:
            copy.execute("ATTACH ? AS old", [_only_read(last)])
            return not _lacks_trials(copy)
        except sqlite3.DatabaseError as error:
            # Replaced if damaged, kept if it only cannot be read now.
            return (error.sqlite_errorname or "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _lacks_trials(copy: sqlite3.Connection) -> bool:
    """Whether a row of the attached old backup of the same store is missing or changed. Only a
    migration to another schema version rewrites them."""
    changed = "SELECT key FROM (SELECT key, value FROM old.meta EXCEPT SELECT * FROM main.meta)"
    differs = {key for (key,) in copy.execute(changed)}
    if "created" in differs:
        return False
    migrated = "schema_version" in differs
    for table in (TRIALS,) if migrated else (TRIALS, SAMPLES):
        key = table.names[: table.keys]
        names = key if migrated else table.names
        ours, theirs = (", ".join(f"{of}.{name}" for name in names) for of in ("new", "old"))
        lacking = (
            f"SELECT 1 FROM old.{table.name} AS old LEFT JOIN main.{table.name} AS new "  # noqa: S608
            f"USING ({', '.join(key)}) WHERE ({ours}) IS NOT ({theirs}) LIMIT 1"
        )
        if copy.execute(lacking).fetchone():
            return True
    return False


def _trials_in(backup: Path, created: str) -> int:
    """The number of trials in a backup of the store created at that time; 0 for any other."""
    query = "SELECT (SELECT max(rowid) FROM trials) FROM meta WHERE key = 'created' AND value = ?"
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(_only_read(backup), uri=True)) as connection,
    ):
        found = connection.execute(query, [created]).fetchone()
        return int(found[0] or 0) if found else 0
    return 0


def _only_read(backup: Path) -> str:
    """URI of a backup, which nobody writes: no locks, and no files beside it."""
    return f"{backup.absolute().as_uri()}?mode=ro&immutable=1"
