"""The statements that change a store. A sweep adds thousands of trials, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernloom.base.errors import StoreError
from kernloom.base.sealed import seal
from kernloom.measure.trial import Samples, Trial
from kernloom.store.database import Connection
from kernloom.store.digests import trial_digest
from kernloom.store.rows import now, sample_row
from kernloom.store.schema import (
    BASELINES,
    DOCUMENTS,
    REUSES,
    SAMPLES,
    SCREENINGS,
    SOURCES,
    TRIALS,
    insert_into,
)

TRIES = 1000
"""Retries when another writer takes the same attempt number; more means another problem."""

_OR_LEAVE = " ON CONFLICT DO NOTHING"
# SQLite permits one writer at a time; in PostgreSQL another writer may get the same number, and
# then the second inserts nothing.
_NEXT = "SELECT coalesce(max(attempt), 0) + 1 AS attempt FROM trials WHERE id = :id"
_ADD_TRIAL = insert_into(TRIALS) + _OR_LEAVE
_ADD_SAMPLES = insert_into(SAMPLES)
_ADD_DOCUMENTS = insert_into(DOCUMENTS) + _OR_LEAVE
_ADD_BASELINE = insert_into(BASELINES)
_NOTE_SOURCES = (
    insert_into(SOURCES)
    + " ON CONFLICT (trial) DO UPDATE SET used = excluded.used, document = excluded.document"
)
_SAVE_SCREENING = (
    insert_into(SCREENINGS)
    + " ON CONFLICT (id) DO UPDATE SET created = excluded.created, text = excluded.text"
)
_COUNT_REUSE = insert_into(REUSES) + " ON CONFLICT (trial) DO UPDATE SET times = reuses.times + 1"
_SCREENING_FIELDS = ("status", "verified", "metrics", "conditions", "stage", "message", "stderr")
"""The fields of a trial that are not known in advance."""


def add(
    connection: Connection,
    row: Mapping[str, Any],
    taken: Sequence[Samples],
    sections: Mapping[str, str],
    sources: Mapping[str, Any] | None = None,
) -> None:
    """Insert a trial as the next attempt of its id; `sections` are those not stored yet."""
    add_documents(connection, sections)
    samples = [sample_row(row["id"], process, s) for process, s in enumerate(taken)]
    for _ in range(TRIES):
        (found,) = connection.rows(_NEXT, {"id": row["id"]})
        numbered = {**row, **found}
        numbered["digest"] = trial_digest(numbered, samples)
        if connection.run(_ADD_TRIAL, (numbered,)) == 1:
            break
    else:
        raise StoreError(f"trial {row['id']} was refused a number {TRIES} times")
    connection.run(_ADD_SAMPLES, [{**sample, **found} for sample in samples])
    note_sources(connection, [sources] if sources else [])


# Rows are written in the same order everywhere, because writers could deadlock otherwise.


def add_documents(connection: Connection, texts: Mapping[str, str]) -> None:
    """Insert texts by their hashes, unless they are stored already."""
    rows = [{"hash": name, "text": texts[name]} for name in sorted(texts)]
    connection.run(_ADD_DOCUMENTS, rows)


def note_sources(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Record the sources from which trials were planned just now."""
    connection.run(_NOTE_SOURCES, sorted(rows, key=lambda row: str(row["trial"])))


def count_reuses(connection: Connection, ids: Iterable[str]) -> None:
    """Count a cache hit for each of these trials."""
    connection.run(_COUNT_REUSE, [{"trial": id, "times": 1} for id in sorted(set(ids))])


def save_screenings(connection: Connection, screenings: Mapping[str, Trial]) -> None:
    """Store screening results, replacing earlier ones with the same identities."""
    fields = {
        id: {name: getattr(screenings[id], name) for name in _SCREENING_FIELDS}
        for id in sorted(screenings)
    }
    created = now()
    rows = [{"id": id, "created": created, "text": seal(of, id)} for id, of in fields.items()]
    connection.run(_SAVE_SCREENING, rows)


def save_baseline(connection: Connection, name: str, ids: Iterable[str]) -> None:
    """Make the saved baseline of this name consist of exactly these trials."""
    remove_baseline(connection, name)
    created = now()
    rows = [{"name": name, "trial": id, "created": created} for id in ids]
    connection.run(_ADD_BASELINE, rows)


def remove_baseline(connection: Connection, name: str) -> int:
    """Delete a saved baseline; returns its number of trials."""
    return connection.run("DELETE FROM baselines WHERE name = :name", [{"name": name}])
