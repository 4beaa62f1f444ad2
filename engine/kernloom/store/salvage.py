"""Saves from a damaged store whatever can still be read, and puts a sound one in its place."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from kernloom.base.errors import DamagedError, StoreError
from kernloom.config.schema import STATUSES
from kernloom.store import schema
from kernloom.store.digests import DIGEST, is_sound, samples_are_sound, trial_digest
from kernloom.store.pages import Pages, Row
from kernloom.store.rows import DOCUMENTS, FACTS, LISTS, SHARED
from kernloom.store.shared import HASH, hash_of, places_in, without
from kernloom.store.sqlite import Sqlite, repaired_of, wal_of
from kernloom.store.store import open_store

KEPT = ".damaged"
_SHARED_LOCK = (0x40000002, 510)
"""Where SQLite locks a file for as long as it is open."""


@dataclass(frozen=True)
class Salvaged:
    """What became of a store."""

    saved: int
    lost: int = 0
    """Trials that are known to have been there."""
    more: bool = False
    """Whether others may have been there: pages are missing or cannot be read."""
    incomplete: int = 0
    """Saved trials of whose config, machine or samples a part is lost."""
    kept: Path | None = None
    """Where the damaged file is now; None if nothing was wrong."""


@dataclass
class _Found:
    """Rows by what they are known by."""

    trials: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    samples: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    baselines: dict[tuple[str, str], str] = field(default_factory=dict)
    reuses: dict[str, int] = field(default_factory=dict)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    named: set[tuple[str, int]] = field(default_factory=set)
    """Trials that an index names."""
    current: set[tuple[str, int]] = field(default_factory=set)
    """Trials that a sound store has."""
    unsampled: set[tuple[str, int]] = field(default_factory=set)
    """Trials whose samples do not match their digests; nobody knows which of them are right."""
    version: int = 0


def salvage(path: Path) -> Salvaged:
    """Make a store readable again; a sound one is left as it is."""
    if not path.exists() and not repaired_of(path).exists():
        raise StoreError(f"there is no store {path}", hint="Name one with store.path=FILE.")
    with _alone(path if path.exists() else repaired_of(path)):
        if repaired_of(path).exists():
            return _finished(path)
        pages = Pages(path, wal_of(path))
        found = _found(pages)
        if _is_sound(path, found):
            return Salvaged(len(found.current))
        if not (found.trials or found.documents):
            raise StoreError(
                f"{path} is no store, and nothing in it can be read as one",
                hint="Move it away: a new one is made. Or name another with store.path=FILE.",
            )
        if found.version > schema.VERSION:
            raise StoreError(
                f"{path} is damaged, and its schema version is {found.version}, newer than "
                f"{schema.VERSION}, the newest known here",
                hint="Repair it with the Kernloom that wrote it.",
            )
        incomplete = _note_what_is_lost(found)
        kept = _replace(path, found)
    return _salvaged(found, pages, incomplete, kept)


def _salvaged(found: _Found, pages: Pages, incomplete: int, kept: Path | None) -> Salvaged:
    lost = len(found.named - found.trials.keys())
    return Salvaged(len(found.trials), lost, pages.has_gaps(), incomplete, kept)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """With nobody else having the store open."""
    try:
        with path.open("r+b") as file:
            try:
                _lock(file)
            except (BlockingIOError, PermissionError):
                raise StoreError(
                    f"{path} is in use by another process",
                    hint="See who has it open (for instance: fuser FILE), and repair it after.",
                ) from None
            yield
    except OSError as error:
        raise StoreError(f"{path} cannot be repaired: {error.strerror or error}") from error


def _lock(file: BinaryIO) -> None:
    """A lock that holds until this file is closed, whoever else opens and closes the same one.

    SQLite respects it, though its own are of the other kind: those that end when a process closes
    any file of that name.
    """
    start, length = _SHARED_LOCK
    wanted = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)


def _is_sound(path: Path, found: _Found) -> bool:
    """Whether all of it can be read as ever; looked at in a copy, which opening may change.

    A sound database that is no store, or one of a newer Kernloom, is refused.
    """
    log = wal_of(path)
    if path.stat().st_size == 0:
        return not log.exists() or log.stat().st_size == 0
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        copy = Path(folder) / path.name
        for source in (path, log):
            if source.exists():
                shutil.copyfile(source, copy.with_name(source.name))
        database = Sqlite(copy)
        database.name = str(path)
        whole = False
        try:
            with closing(database.connect()) as connection:
                said = connection.rows("PRAGMA integrity_check")
                whole = [row["integrity_check"] for row in said] == ["ok"]
                database.check_version(connection)
            # Trials that do not match their digests are noted, and left out of the answer.
            noted: list[str] = []
            with open_store(copy, noted.append) as store:
                store.sources()
                trials = sum(1 for _ in store.stream(history=True))
            return whole and not noted and trials == len(found.current)
        except sqlite3.Error as error:
            explained = database.explain(error)
            if isinstance(explained, DamagedError):
                return False
            raise explained or error from error
        except StoreError as error:
            if isinstance(error, DamagedError) or (found.trials and not whole):
                return False
            raise


def _found(pages: Pages) -> _Found:
    found = _Found()
    for row in pages.rows():
        _sort_in(row, found)
    taken = _samples_by_trial(found)
    found.unsampled = {
        name
        for name, row in found.trials.items()
        if not samples_are_sound(row[DIGEST], taken.get(name, []))
    }
    found.samples = {
        key: row for key, row in found.samples.items() if key[:2] not in found.unsampled
    }
    return found


def _samples_by_trial(found: _Found) -> dict[tuple[str, int], list[dict[str, Any]]]:
    taken: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for key, row in found.samples.items():
        taken.setdefault(key[:2], []).append(row)
    return taken


def _sort_in(row: Row, found: _Found) -> None:
    """Tell by its looks what a row is; the tables' own names may be lost."""
    match row.values:
        case (str(id), int(attempt), int()) if not row.table:
            found.named.add((id, attempt))
        case ("schema_version", str(version)) if row.table and version.isdigit():
            found.version = max(found.version, int(version))
        case (str(name), str(text)) if row.table:
            if name not in found.documents and hash_of(text) == name:
                found.documents[name] = text
        case (str(trial), str(used), str(document)) if not row.table:
            if row.latest and _is_source(used, document):
                found.sources[trial] = (used, document)
        case (str(name), str(trial), str(created)) if row.table:
            # A look has three texts, too, but no time at their end.
            if row.latest and _is_time(created):
                found.baselines[name, trial] = created
        case (str(trial), int(times)) if row.table:
            if row.latest:
                found.reuses[trial] = times
        case (str(trial), int(attempt), int(process), int(), *_) if not row.table:
            if (trial, attempt, process) not in found.samples and (sample := _sample(row.values)):
                found.samples[trial, attempt, process] = sample
        case (str(id), int(attempt), str(), *_) if row.table:
            if (id, attempt) not in found.trials and (whole := _trial(row.values)):
                found.trials[id, attempt] = whole
            if row.latest and (id, attempt) in found.trials:
                found.current.add((id, attempt))


def _is_source(used: str, document: str) -> bool:
    """Whether these are the time and the document of a trial's sources."""
    return _is_time(used) and re.fullmatch(f"[0-9a-f]{{{HASH}}}", document) is not None


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _orders(table: schema.Table) -> list[list[str]]:
    """The columns as a table may have them: it began with some, and the rest came at its end."""
    new = table.names
    added = list(schema.ADDED[table.name])
    orders = []
    for began in range(len(added) + 1):
        first = [name for name in new if name not in added[began:]]
        orders += [first + added[began:end] for end in range(began, len(added) + 1)]
    return orders[::-1]


_DEFAULTS = {name: text for columns in schema.ADDED.values() for name, text in columns.items()}
_TRIAL_ORDERS = _orders(schema.TRIALS)
_SAMPLE_ORDERS = _orders(schema.SAMPLES)
_SAMPLE_LISTS = ("wall_ns", "cpu_ns", "involuntary", "transfer_ns")


def _trial(values: Sequence[Any]) -> dict[str, Any] | None:
    for order in _TRIAL_ORDERS:
        if len(order) != len(values):
            continue
        row = dict(zip(order, values, strict=True))
        row |= {name: _DEFAULTS[name] for name in _TRIAL_ORDERS[0] if name not in row}
        lists = dict.fromkeys(LISTS, list)
        if (
            row["status"] in STATUSES
            and row["verified"] in (0, 1)
            and isinstance(row["seconds"], (int, float))
            and all(_holds(row[name], lists.get(name, dict)) for name in (*DOCUMENTS, FACTS))
            and all(isinstance(row[n], str) for n in ("created", "workload", "message", "stderr"))
        ):
            whole = row | {"verified": bool(row["verified"]), "seconds": float(row["seconds"])}
            return whole if is_sound(whole) else None
    return None


def _sample(values: Sequence[Any]) -> dict[str, Any] | None:
    for order in _SAMPLE_ORDERS:
        if len(order) == len(values):
            row = {"transfer_ns": "[]"} | dict(zip(order, values, strict=True))
            if all(_holds(row[name], list) for name in _SAMPLE_LISTS):
                return row
    return None


def _holds(text: Any, kind: type) -> bool:
    """Whether a text is JSON of such a value."""
    try:
        return isinstance(text, str) and isinstance(json.loads(text), kind)
    except ValueError:
        return False


def _note_what_is_lost(found: _Found) -> int:
    """Put a note where a document that is lost belongs; how many trials lack something."""

    def is_lost(name: str) -> bool:
        text = found.documents.get(name)
        return text is None or any(map(is_lost, places_in(text)))

    sampled = Counter(key[:2] for key in found.samples)
    incomplete = 0
    for key, row in found.trials.items():
        noted = {name: without(row[name], is_lost) for name in (*SHARED, FACTS)}
        processes = json.loads(row["metrics"]).get("processes", 0)
        unsampled = key in found.unsampled
        unsampled |= isinstance(processes, int) and sampled[key] < processes
        incomplete += unsampled or any(row[name] != text for name, text in noted.items())
        row.update(noted)
    return incomplete


def _replace(path: Path, found: _Found) -> Path:
    """A new store with these rows in the place of the damaged one, and where that is kept.

    Whatever interrupts it: the damaged files have a name, and as soon as the first of them is taken
    away, the new store has one, too, by which the next repair goes on.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        fresh = Path(folder) / path.name
        _write(fresh, found)
        kept = _free_name(path)
        for source, name in ((wal_of(path), wal_of(kept)), (path, kept)):
            if source.exists():
                _keep(source, name, Path(folder))
        _settle(path.parent)
        fresh.replace(repaired_of(path))
    _take_place(path)
    return kept


def _take_place(path: Path) -> None:
    """The repaired store under its own name; before that, the log of the damaged one must go."""
    _settle(path.parent)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    _settle(path.parent)
    repaired_of(path).replace(path)
    _settle(path.parent)


def _finished(path: Path) -> Salvaged:
    """What an interrupted repair had still to do."""
    kept = None
    for name in _kept_names(path):
        if not name.exists():
            break
        kept = name
    _take_place(path)
    pages = Pages(kept or path, wal_of(kept or path))
    found = _found(pages)
    return _salvaged(found, pages, _note_what_is_lost(found), kept)


def _keep(source: Path, name: Path, folder: Path) -> None:
    """Give a file a second name; a copy, where a file can have only one."""
    if name.exists():
        return
    try:
        os.link(source, name)
    except OSError:
        copy = folder / name.name
        shutil.copyfile(source, copy)
        _settle(copy)
        copy.replace(name)


def _settle(path: Path) -> None:
    """What was done to a file, or in a folder, outlives a power failure from here on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kept_names(path: Path) -> Iterator[Path]:
    return (path.with_name(f"{path.name}{KEPT}-{number}") for number in itertools.count(1))


def _free_name(path: Path) -> Path:
    names = _kept_names(path)
    return next(name for name in names if not name.exists() and not wal_of(name).exists())


def _write(path: Path, found: _Found) -> None:
    taken = _samples_by_trial(found)
    for name, row in found.trials.items():
        # Of what is left: samples and sections may be lost.
        row[DIGEST] = trial_digest(row, taken.get(name, []))
    ids = {id for id, _ in found.trials}
    rows: Mapping[schema.Table, list[dict[str, Any]]] = {
        # In their old order, as far as that is known.
        schema.TRIALS: sorted(found.trials.values(), key=lambda row: str(row["created"])),
        schema.SAMPLES: [
            row for key, row in sorted(found.samples.items()) if key[:2] in found.trials
        ],
        schema.DOCUMENTS: [{"hash": key, "text": text} for key, text in found.documents.items()],
        schema.BASELINES: [
            {"name": name, "trial": trial, "created": created}
            for (name, trial), created in found.baselines.items()
        ],
        schema.REUSES: [
            {"trial": trial, "times": times}
            for trial, times in found.reuses.items()
            if trial in ids
        ],
        schema.SOURCES: [
            {"trial": trial, "used": used, "document": document}
            for trial, (used, document) in found.sources.items()
            if trial in ids and document in found.documents
        ],
    }
    database = Sqlite(path)
    with closing(database.connect()) as connection:
        database.make_tables(connection)
        connection.begin()
        for table, values in rows.items():
            connection.run(schema.insert_into(table), values)
        connection.commit()
        # All of it into the one file that is moved.
        connection.run("PRAGMA wal_checkpoint(TRUNCATE)")
