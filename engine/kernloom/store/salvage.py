"""Saves from a damaged store whatever can still be read, and puts a sound one in its place."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert

from kernloom.config.schema import STATUSES
from kernloom.errors import StoreError
from kernloom.store import schema
from kernloom.store.pages import Pages, Row
from kernloom.store.rows import DOCUMENTS, LISTS
from kernloom.store.shared import hash_of, places_in, without
from kernloom.store.sqlite import Sqlite, wal_of
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
    incomplete: int = 0
    """Saved trials of whose config or machine a part is lost."""
    kept: Path | None = None
    """Where the damaged file is now; None if nothing was wrong."""


@dataclass
class _Found:
    """Rows by what they are known by."""

    trials: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    samples: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    baselines: dict[tuple[str, str], str] = field(default_factory=dict)
    named: set[tuple[str, int]] = field(default_factory=set)
    """Trials that an index names."""


def salvage(path: Path) -> Salvaged:
    """Make a store readable again; a sound one is left as it is."""
    if not path.exists():
        raise StoreError(f"there is no store {path}", hint="Name one with store.path=FILE.")
    with _alone(path):
        pages = Pages(path, wal_of(path))
        found = _found(pages)
        if _is_sound(path, len(found.trials)):
            return Salvaged(len(found.trials))
        if not pages.is_store() and not found.trials:
            raise StoreError(
                f"{path} is no store, and nothing in it can be read as one",
                hint="Move it away: a new one is made. Or name another with store.path=FILE.",
            )
        incomplete = _note_what_is_lost(found)
        kept = _replace(path, found)
    return Salvaged(len(found.trials), len(found.named - found.trials.keys()), incomplete, kept)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """With nobody else having the store open."""
    try:
        with path.open("r+b") as file:
            start, length = _SHARED_LOCK
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
            except BlockingIOError:
                raise StoreError(
                    f"{path} is in use by another process",
                    hint="See who has it open (for instance: fuser FILE), and repair it after.",
                ) from None
            yield
    except OSError as error:
        raise StoreError(f"{path} cannot be repaired: {error.strerror or error}") from error


def _is_sound(path: Path, trials: int) -> bool:
    """Whether all of it can be read as ever; looked at in a copy, which opening may change."""
    if path.stat().st_size == 0:
        return not wal_of(path).exists()
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        copy = Path(folder) / path.name
        for source in (path, wal_of(path)):
            if source.exists():
                shutil.copyfile(source, copy.with_name(source.name))
        try:
            with closing(sqlite3.connect(copy)) as database:
                if database.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                    return False
            with open_store(copy) as store:
                return len(store.query(history=True)) == trials
        except (sqlite3.Error, StoreError):
            return False


def _found(pages: Pages) -> _Found:
    found = _Found()
    for row in pages.rows():
        _sort_in(row, found)
    return found


def _sort_in(row: Row, found: _Found) -> None:
    """Tell by its looks what a row is; the tables' own names may be lost."""
    match row.values:
        case (str(id), int(attempt), int()) if not row.table:
            found.named.add((id, attempt))
        case (str(name), str(text)) if row.table and hash_of(text) == name:
            found.documents[name] = text
        case (str(name), str(trial), str(created)) if row.table:
            found.baselines[name, trial] = created
        case (str(), int(), int(), int(), *_) if not row.table:
            sample = _sample(row.values)
            if sample:
                found.samples[sample["trial"], sample["attempt"], sample["process"]] = sample
        case (str(), int(), str(), *_) if row.table:
            whole = _trial(row.values)
            if whole:
                found.trials[whole["id"], whole["attempt"]] = whole


def _orders(table: Table) -> list[list[str]]:
    """The columns as a new table has them, as an old one had, and as one that was brought up."""
    new = [column.name for column in table.c]
    added = [name for tables in schema.ADDED.values() for name in tables.get(table.name, {})]
    old = [name for name in new if name not in added]
    return [new, old, old + added]


_DEFAULTS = {
    name: text
    for tables in schema.ADDED.values()
    for columns in tables.values()
    for name, text in columns.items()
}
_TRIAL_ORDERS = _orders(schema.trials)
_SAMPLE_ORDERS = _orders(schema.samples)
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
            and all(_holds(row[name], lists.get(name, dict)) for name in DOCUMENTS)
            and all(isinstance(row[n], str) for n in ("created", "workload", "message", "stderr"))
        ):
            return row | {"verified": bool(row["verified"]), "seconds": float(row["seconds"])}
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
    """Put a note where a document that is lost belongs; how many trials have one."""

    def is_lost(name: str) -> bool:
        text = found.documents.get(name)
        return text is None or any(map(is_lost, places_in(text)))

    incomplete = 0
    for row in found.trials.values():
        noted = {name: without(row[name], is_lost) for name in ("config", "machine")}
        incomplete += any(row[name] != text for name, text in noted.items())
        row.update(noted)
    return incomplete


def _replace(path: Path, found: _Found) -> Path:
    """A new store with these rows in the place of the damaged one, and where that is kept."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        fresh = Path(folder) / path.name
        _write(fresh, found)
        kept = _free_name(path)
        # In this order, whatever interrupts it: the damaged file always has a name.
        os.link(path, kept)
        if wal_of(path).exists():
            wal_of(path).rename(wal_of(kept))
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        fresh.replace(path)
    return kept


def _free_name(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}{KEPT}-{number}")).exists():
        number += 1
    return kept


def _write(path: Path, found: _Found) -> None:
    database = Sqlite(path)
    engine = database.engine()
    database.make_tables(engine)
    rows: Mapping[Table, list[dict[str, Any]]] = {
        # In their old order, as far as that is known.
        schema.trials: sorted(found.trials.values(), key=lambda row: str(row["created"])),
        schema.samples: [
            row for key, row in sorted(found.samples.items()) if key[:2] in found.trials
        ],
        schema.documents: [{"hash": key, "text": text} for key, text in found.documents.items()],
        schema.baselines: [
            {"name": name, "trial": trial, "created": created}
            for (name, trial), created in found.baselines.items()
        ],
    }
    with engine.begin() as connection:
        for table, values in rows.items():
            if values:
                connection.execute(insert(table), values)
    with engine.connect() as connection:
        # All of it into the one file that is moved.
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
