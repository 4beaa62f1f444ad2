"""What is found in a store by its name: trials by id, what they share by hash, baselines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.measure.trial import Samples, Trial
from kernloom.store.database import PlainConnection
from kernloom.store.rows import FACTS, SHARED, samples_of, trial_of
from kernloom.store.shared import Reader

CHUNK = 500
"""How many are asked for by name in one statement."""


class Sections:
    """Reads trials, with the sections that they share fetched and decoded once."""

    def __init__(self, reader: Reader, connection: PlainConnection) -> None:
        self._reader = reader
        self._connection = connection

    def trials(self, rows: Iterable[Mapping[Any, Any]]) -> list[Trial]:
        found = list(rows)
        self.need(found)
        return [trial_of(row, self._reader.document) for row in found]

    def need(self, rows: Iterable[Mapping[Any, Any]], columns: Sequence[str] = SHARED) -> None:
        """Have ready what the documents of these rows refer to."""
        texts = (row[name] for row in rows for name in columns if name in row)
        self._reader.need(texts, self._fetch)

    def document(self, text: str) -> Any:
        return self._reader.document(text)

    def _fetch(self, hashes: Sequence[str]) -> dict[str, str]:
        rows = _among(self._connection, "SELECT hash, text FROM documents WHERE hash", hashes)
        return {row["hash"]: row["text"] for row in rows}


def _among(
    connection: PlainConnection, before: str, values: Sequence[str], after: str = ""
) -> Iterator[dict[str, Any]]:
    """The rows of a statement that asks for any of these values."""
    for start in range(0, len(values), CHUNK):
        some = {f"v{number}": value for number, value in enumerate(values[start : start + CHUNK])}
        places = ", ".join(f":{name}" for name in some)
        yield from connection.rows(f"{before} IN ({places}){after}", some)


def latest(connection: PlainConnection, sections: Sections, ids: Sequence[str]) -> dict[str, Trial]:
    newest = " AND attempt = (SELECT max(attempt) FROM trials AS other WHERE other.id = trials.id)"
    rows = _among(connection, "SELECT * FROM trials WHERE id", ids, newest)
    return {trial.id: trial for trial in sections.trials(rows)}


def samples_of_trial(connection: PlainConnection, id: str) -> tuple[Samples, ...]:
    newest = "(SELECT max(attempt) FROM trials WHERE id = :trial)"
    rows = connection.rows(
        "SELECT * FROM samples WHERE trial = :trial AND attempt = "  # noqa: S608
        f"{newest} ORDER BY process",
        {"trial": id},
    )
    return tuple(map(samples_of, rows))


def samples_of_attempts(
    connection: PlainConnection, names: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], tuple[Samples, ...]]:
    """What each process of these attempts, by id and number, measured."""
    found: dict[tuple[str, int], tuple[Samples, ...]] = {}
    for start in range(0, len(names), CHUNK):
        some = names[start : start + CHUNK]
        places = ", ".join(f"(:trial{number}, :attempt{number})" for number in range(len(some)))
        values: dict[str, Any] = {}
        for number, (trial, attempt) in enumerate(some):
            values |= {f"trial{number}": trial, f"attempt{number}": attempt}
        # Joined: SQLite would go through all samples to see which of them are among some pairs.
        statement = (
            f"SELECT samples.* FROM (VALUES {places}) AS wanted "  # noqa: S608
            "JOIN samples ON trial = wanted.column1 AND attempt = wanted.column2 ORDER BY process"
        )
        for row in connection.rows(statement, values):
            name = row["trial"], row["attempt"]
            found[name] = (*found.get(name, ()), samples_of(row))
    return found


def facts(
    connection: PlainConnection, sections: Sections, workload: str, target: str, limit: int
) -> list[tuple[str, dict[str, Any]]]:
    """Ids and facts of the newest trials of a workload on a target."""
    rows = connection.rows(
        "SELECT id, facts FROM trials WHERE workload = :workload AND target = :target "
        "AND facts <> '{}' ORDER BY created DESC LIMIT :count",
        {"workload": workload, "target": target, "count": limit},
    )
    sections.need(rows, [FACTS])
    return [(row["id"], sections.document(row[FACTS])) for row in rows]


@dataclass(frozen=True)
class SourceUse:
    """Kernel sources that trials were planned from, and when."""

    document: str
    """The hash by which trials refer to it."""
    files: Mapping[str, Mapping[str, str]]
    """Kernel and family of sources -> path -> hash."""
    first: str
    """When the first trial of it was made."""
    last: str
    """When one was last made or reused."""


def sources(connection: PlainConnection) -> tuple[list[SourceUse], dict[str, str]]:
    """The sources there are, and trial -> the document that says which it was planned from."""
    uses = connection.rows(
        "SELECT sources.document AS document, documents.text AS text, "
        "min(trials.created) AS first, max(sources.used) AS last FROM sources "
        "JOIN trials ON trials.id = sources.trial "
        "JOIN documents ON documents.hash = sources.document "
        "GROUP BY sources.document, documents.text"
    )
    found = [
        SourceUse(row["document"], json.loads(row["text"]), row["first"], row["last"])
        for row in uses
    ]
    rows = connection.rows("SELECT trial, document FROM sources")
    return found, {row["trial"]: row["document"] for row in rows}


def reuses_of(connection: PlainConnection, ids: Sequence[str]) -> dict[str, int]:
    rows = _among(connection, "SELECT trial, times FROM reuses WHERE trial", ids)
    return {row["trial"]: row["times"] for row in rows}


def looks(connection: PlainConnection, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What came of earlier looks, as fields of a trial."""
    rows = _among(connection, "SELECT id, text FROM looks WHERE id", ids)
    return {row["id"]: json.loads(row["text"]) for row in rows}


def baseline(connection: PlainConnection, name: str) -> list[str]:
    """The ids of the trials under a name."""
    rows = connection.rows("SELECT trial FROM baselines WHERE name = :name", {"name": name})
    return [row["trial"] for row in rows]


def named_baselines(connection: PlainConnection) -> list[tuple[str, str, int]]:
    """Name, time and number of trials of each baseline."""
    rows = connection.rows(
        "SELECT name, max(created) AS created, count(*) AS trials FROM baselines "
        "GROUP BY name ORDER BY name"
    )
    return [(row["name"], row["created"], row["trials"]) for row in rows]
