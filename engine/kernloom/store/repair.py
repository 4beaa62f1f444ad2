"""`results repair`: replaces a damaged store by a sound one.

The new store has everything that SQLite can still read of the damaged one, and the rest from the
backups. The damaged file is kept beside it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernloom.base.errors import StoreError
from kernloom.store import schema, versions
from kernloom.store.backups import backups_of
from kernloom.store.claims import lock
from kernloom.store.database import Connection
from kernloom.store.lookups import Name
from kernloom.store.readable import CHANGING, Readable, with_notes
from kernloom.store.rows import Row, samples_are_sound, trial_digest
from kernloom.store.sqlite import CountFile, Sqlite, count_file_of, log_size, repaired_of, wal_of

DAMAGED_SUFFIX = ".damaged"
OUTCOME = "repair"
"""Key in `meta` of a repaired store with the outcome of the repair."""
_SHARED_LOCK = (0x40000002, 510)
"""The bytes that SQLite locks while a file is open, as documented."""


@dataclass(frozen=True)
class Repaired:
    """The outcome of a repair."""

    saved: int
    lost: int = 0
    """Number of trials known to have been there."""
    more: bool = False
    """Whether there may have been others, in unknown number."""
    incomplete: int = 0
    """Saved trials that lost a part of their config, machine or samples."""
    restored: int = 0
    """Saved trials from a backup."""
    kept: Path | None = None
    """Path of the damaged file; None if nothing was wrong."""


def repair(path: Path) -> Repaired:
    """Make a store readable again; a sound one is left unchanged."""
    if not path.exists() and not repaired_of(path).exists():
        backup = next((file for file in backups_of(path) if file.exists()), None)
        hint = f"Its backup is {backup}: copy that." if backup else ""
        raise StoreError(f"there is no store {path}", hint=hint or "Name one with store.path=FILE.")
    with _alone(path if path.exists() else repaired_of(path)):
        if repaired_of(path).exists():
            _take_place(path)
            return _outcome(path)
        if not path.stat().st_size and not log_size(path):
            return Repaired(0)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            return _repair(path, Path(folder))


def _repair(path: Path, folder: Path) -> Repaired:
    store = Readable(_copied(path, folder / "store"))
    _check_kind(path, store)
    files = [file for file in backups_of(path) if file.exists()]
    backups = [Readable(_copied(file, folder / f"backup{n}")) for n, file in enumerate(files)]
    backups = [backup for backup in backups if _is_backup_of(backup, store, CountFile(path))]
    found = _Merged(store, backups)
    if store.is_sound and not found.restored:
        return Repaired(len(found.trials))
    if not (found.trials or found.documents):
        raise StoreError(
            f"{path} is no store, and nothing in it can be read as one",
            hint="Move it away: a new one is made. Or name another with store.path=FILE.",
        )
    kept = _free_name(path)
    # While a backup lacks trials, the count file has their number.
    known = CountFile(path).read(found.meta.get("created", ""))
    saved = len(found.trials)
    lost = max(len(store.names - found.trials.keys()), known - saved)
    all_read = schema.TRIALS.name in store.tables and schema.TRIALS.name not in store.unread
    more = not (all_read or known or backups)
    done = Repaired(saved, lost, more, found.incomplete, found.restored, kept)
    fresh = folder / path.name
    found.write(fresh, done)
    for source, name in ((wal_of(path), wal_of(kept)), (path, kept)):
        if source.exists():
            copy = folder / name.name
            shutil.copyfile(source, copy)
            _settle(copy)
            copy.replace(name)
    _settle(path.parent)
    fresh.replace(repaired_of(path))
    _take_place(path)
    return done


def _is_backup_of(backup: Readable, store: Readable, count: CountFile) -> bool:
    """Whether a backup is of this store, and not of an earlier one at the same path.

    The count file tells where the store itself cannot: it stays until a backup has all trials.
    """
    created, theirs = store.meta.get("created"), backup.meta.get("created", "")
    if created is not None:
        return bool(theirs == created)
    return not count.exists() or count.read(theirs) > 0


def _check_kind(path: Path, store: Readable) -> None:
    """Refuse a sound database that is not a store, and a store of a newer Kernloom."""
    if store.passes and schema.META.name not in store.tables:
        Sqlite(path).check_foreign(Connection(), sorted(store.tables))
    version = store.meta.get("schema_version", "")
    if version.isdigit() and int(version) > schema.VERSION:
        raise versions.newer(path, version, "Repair it with the Kernloom that wrote it.")


def _copied(path: Path, folder: Path) -> Path:
    """A copy of a file and its log: SQLite may change what it opens."""
    folder.mkdir()
    copy = folder / path.name
    for source in (path, wal_of(path)):
        if source.exists():
            shutil.copyfile(source, copy.with_name(source.name))
    if not copy.stat().st_size:
        # SQLite deletes the log of an empty file without reading it.
        copy.write_bytes(bytes(4096))
    return copy


class _Merged:
    """The trials of a damaged store, completed from its backups."""

    def __init__(self, store: Readable, backups: Sequence[Readable]) -> None:
        files = [store, *backups]
        self.meta = next((file.meta for file in files if file.meta), {})
        self.documents = {name: text for file in files for name, text in file.documents.items()}
        self.trials: dict[Name, dict[str, Any]] = {}
        self.samples: dict[Name, list[Row]] = {}
        self.restored = self.incomplete = 0
        for name in dict.fromkeys(name for file in files for name in file.trials):
            row = next(file.trials[name] for file in files if name in file.trials)
            samples = next((file.samples[name] for file in files if name in file.samples), [])
            noted = with_notes(row, self.documents)
            complete = not noted and not _lacks_samples(row, samples)
            self.incomplete += not complete
            self.restored += name not in store.trials or (complete and name in store.incomplete)
            self.trials[name] = {**row, **noted}
            self.samples[name] = samples
        self.changing = {table: _newest_rows(table, store, backups) for table in CHANGING}

    def write(self, path: Path, outcome: Repaired) -> None:
        """Write a store with these rows."""
        for name, row in self.trials.items():
            # Digest of what is left: samples and sections may be lost.
            row["digest"] = trial_digest(row, self.samples[name])
        ids = {id for id, _ in self.trials}
        rows: dict[schema.Table, list[Row]] = {
            # In their original order, as far as known.
            schema.TRIALS: sorted(self.trials.values(), key=lambda row: str(row["created"])),
            schema.SAMPLES: [row for taken in self.samples.values() for row in taken],
            schema.DOCUMENTS: [{"hash": name, "text": t} for name, t in self.documents.items()],
            **self.changing,
            schema.REUSES: [r for r in self.changing[schema.REUSES] if r["trial"] in ids],
            schema.SOURCES: [
                row
                for row in self.changing[schema.SOURCES]
                if row["trial"] in ids and row["document"] in self.documents
            ],
        }
        database = Sqlite(path)
        with closing(database.connect()) as connection:
            database.make_tables(connection)
            connection.begin()
            for table, values in rows.items():
                connection.insert(table, values)
            made = {key: self.meta[key] for key in ("created", "created_by") if key in self.meta}
            said = json.dumps(asdict(outcome) | {"kept": outcome.kept and outcome.kept.name})
            versions.set_meta(connection, **made, **{OUTCOME: said})
            connection.commit()
            # Checkpoint everything into the one file that is moved.
            connection.run("PRAGMA wal_checkpoint(TRUNCATE)")


def _lacks_samples(row: Row, samples: Sequence[Row]) -> bool:
    """Whether a trial has fewer stored samples than it took."""
    processes = json.loads(row["metrics"]).get("processes", 0)
    fewer = isinstance(processes, int) and len(samples) < processes
    return fewer or not samples_are_sound(row["digest"], samples)


def _newest_rows(table: schema.Table, store: Readable, backups: Sequence[Readable]) -> list[Row]:
    """The rows of a table that changes: those of the store, unless they have a gap."""
    gap = table.name in store.damaged or table.name not in store.tables
    rows: dict[tuple[Any, ...], Row] = {}
    for file in [*(backups[::-1] if gap else ()), store]:
        rows |= file.changing[table]
    return list(rows.values())


def _outcome(path: Path) -> Repaired:
    """The outcome of an interrupted repair."""
    with closing(Sqlite(path).connect()) as connection:
        said = json.loads(versions.meta(connection)[OUTCOME])
    return Repaired(**said | {"kept": path.with_name(said["kept"])})


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the store exclusively."""
    try:
        with path.open("r+b") as file:
            try:
                # SQLite respects it, though its own locks end when a process closes any
                # descriptor of the file.
                lock(file.fileno(), fcntl.F_WRLCK, fcntl.F_OFD_SETLK, *_SHARED_LOCK)
            except (BlockingIOError, PermissionError):
                raise StoreError(
                    f"{path} is in use by another process",
                    hint="See who has it open (for instance: fuser FILE), and repair it after.",
                ) from None
            yield
    except OSError as error:
        raise StoreError(f"{path} cannot be repaired: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} cannot be repaired: {error}",
            hint="Nothing was changed. Free some space if the disk is full, and repair it again.",
        ) from error


def _take_place(path: Path) -> None:
    """Rename the repaired store to its final name, after removing the log of the damaged one."""
    _settle(path.parent)
    for file in (wal_of(path), path.with_name(path.name + "-shm"), count_file_of(path)):
        file.unlink(missing_ok=True)
    _settle(path.parent)
    repaired_of(path).replace(path)
    _settle(path.parent)


def _settle(path: Path) -> None:
    """Sync a file or folder, so that changes survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free_name(path: Path) -> Path:
    names = (
        path.with_name(f"{path.name}{DAMAGED_SUFFIX}-{number}") for number in itertools.count(1)
    )
    return next(name for name in names if not name.exists() and not wal_of(name).exists())
