"""Whatever changes a store. Adding a trial is what a sweep does thousands of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernloom.base.errors import StoreError
from kernloom.base.sealed import seal
from kernloom.measure.trial import Samples, Trial
from kernloom.store.database import PlainConnection
from kernloom.store.digests import trial_digest
from kernloom.store.rows import sample_row
from kernloom.store.schema import (
    BASELINES,
    DOCUMENTS,
    LOOKS,
    REUSES,
    SAMPLES,
    SOURCES,
    TRIALS,
    insert_into,
)

TRIES = 1000
"""How often another writer may be first with a number before something else must be wrong."""

_OR_LEAVE = " ON CONFLICT DO NOTHING"
# SQLite lets one process write at a time; in PostgreSQL another one may be given the same number,
# and then whoever is second inserts nothing.
_NEXT = "SELECT coalesce(max(attempt), 0) + 1 AS attempt FROM trials WHERE id = :id"
_ADD_TRIAL = insert_into(TRIALS) + _OR_LEAVE
_ADD_SAMPLES = insert_into(SAMPLES)
_ADD_DOCUMENTS = insert_into(DOCUMENTS) + _OR_LEAVE
_NOTE_SOURCES = (
    insert_into(SOURCES)
    + " ON CONFLICT (trial) DO UPDATE SET used = excluded.used, document = excluded.document"
)
_KEEP_LOOK = (
    insert_into(LOOKS)
    + " ON CONFLICT (id) DO UPDATE SET created = excluded.created, text = excluded.text"
)
_OF_A_LOOK = ("status", "verified", "metrics", "conditions", "stage", "message", "stderr")
"""What of a trial is not known beforehand."""
_COUNT_REUSE = (
    insert_into(REUSES, times="1") + " ON CONFLICT (trial) DO UPDATE SET times = reuses.times + 1"
)


def add(
    connection: PlainConnection,
    row: Mapping[str, Any],
    taken: Sequence[Samples],
    sections: Mapping[str, str],
    sources: Mapping[str, Any] | None = None,
) -> None:
    """Insert a trial as the next attempt of its id; `sections` are those not there yet."""
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
    if samples:
        connection.run(_ADD_SAMPLES, [{**sample, **found} for sample in samples])
    if sources:
        note_sources(connection, [sources])


def add_documents(connection: PlainConnection, texts: Mapping[str, str]) -> None:
    """Add texts by their hashes, unless they are there."""
    if texts:
        # In one order: writers that wait for each other's would wait for ever.
        rows = [{"hash": name, "text": texts[name]} for name in sorted(texts)]
        connection.run(_ADD_DOCUMENTS, rows)


def note_sources(connection: PlainConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Note from which sources trials were planned just now."""
    # In one order, as above.
    connection.run(_NOTE_SOURCES, sorted(rows, key=lambda row: str(row["trial"])))


def count_reuses(connection: PlainConnection, ids: Sequence[str]) -> None:
    """Note that each of these trials was taken instead of being carried out."""
    # In one order, as above.
    connection.run(_COUNT_REUSE, [{"trial": id} for id in sorted(set(ids))])


def keep_looks(connection: PlainConnection, looks: Mapping[str, Trial], created: str) -> None:
    """What came of looks, in place of earlier ones with the same identities."""
    rows = [
        {
            "id": id,
            "created": created,
            "text": seal({name: getattr(looks[id], name) for name in _OF_A_LOOK}, id),
        }
        # In one order, as above.
        for id in sorted(looks)
    ]
    connection.run(_KEEP_LOOK, rows)


def save_baseline(connection: PlainConnection, name: str, ids: Sequence[str], created: str) -> None:
    """Put these trials, and no others, under a name."""
    remove_baseline(connection, name)
    rows = [{"name": name, "trial": id, "created": created} for id in ids]
    connection.run(insert_into(BASELINES), rows)


def remove_baseline(connection: PlainConnection, name: str) -> int:
    """How many trials were under the name."""
    return connection.run("DELETE FROM baselines WHERE name = :name", [{"name": name}])
