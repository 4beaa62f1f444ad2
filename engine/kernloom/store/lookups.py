"""What is found in a store by its name: trials by id, what they share by hash, baselines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kernloom.base.sealed import DamagedFileError, unseal
from kernloom.measure.trial import Samples, Trial
from kernloom.store.database import PlainConnection
from kernloom.store.digests import DIGEST, is_sound, samples_are_sound
from kernloom.store.rows import FACTS, SHARED, samples_of, trial_of
from kernloom.store.shared import Reader, check_hash

CHUNK = 500
"""How many are asked for by name in one statement."""


Name = tuple[str, int]
"""Id and attempt of a trial."""


class Sections:
    """Reads trials, with the sections that they share fetched and decoded once.

    Trials that do not match their digests are left out; `damaged` is told their names.
    """

    def __init__(
        self,
        reader: Reader,
        connection: PlainConnection,
        damaged: Callable[[Sequence[Name]], None] = lambda names: None,
    ) -> None:
        self._reader = reader
        self._connection = connection
        self._damaged = damaged

    def trials(self, rows: Iterable[Mapping[Any, Any]]) -> list[Trial]:
        """The trials of these rows whose rows and samples match their digests."""
        found = list(rows)
        bad = {_name(row) for row in found if not is_sound(row)}
        bad |= set(_unsound(self._connection, [row for row in found if _name(row) not in bad]))
        if bad:
            self._damaged(sorted(bad))
            found = [row for row in found if _name(row) not in bad]
        self.need(found)
        return [trial_of(row, self._reader.document) for row in found]

    def in_chunks(self, rows: Iterable[Sequence[Mapping[Any, Any]]]) -> Iterator[Trial]:
        """The trials of rows that come some at a time."""
        for some in rows:
            yield from self.trials(some)

    def samples(
        self, names: Sequence[Name], rows: Mapping[Name, Sequence[Mapping[str, Any]]]
    ) -> dict[Name, tuple[Samples, ...]]:
        """Samples from their rows, by trial; those that do not match the digest are left out."""
        digests = _digests(self._connection, names)
        bad = [name for name in digests if not samples_are_sound(digests[name], rows[name])]
        if bad:
            self._damaged(bad)
        return {
            name: tuple(map(samples_of, rows[name]))
            for name in digests
            if name not in bad and rows[name]
        }

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


def samples_of_trial(
    connection: PlainConnection, sections: Sections, id: str
) -> tuple[Samples, ...]:
    (row,) = connection.rows(
        "SELECT max(attempt) AS attempt FROM trials WHERE id = :id", {"id": id}
    )
    if row["attempt"] is None:
        return ()
    name = (id, row["attempt"])
    return samples_of_attempts(connection, sections, [name]).get(name, ())


def samples_of_attempts(
    connection: PlainConnection, sections: Sections, names: Sequence[Name]
) -> dict[Name, tuple[Samples, ...]]:
    """What each process of these attempts measured."""
    return sections.samples(names, sample_rows(connection, names))


def sample_rows(
    connection: PlainConnection, names: Sequence[Name]
) -> dict[Name, list[dict[str, Any]]]:
    """The rows of samples of these attempts, in the order of their processes."""
    found: dict[Name, list[dict[str, Any]]] = {name: [] for name in names}
    # Joined: SQLite would go through all samples to see which of them are among some pairs.
    statement = (
        "SELECT samples.* FROM {} "
        "JOIN samples ON trial = wanted.column1 AND attempt = wanted.column2 ORDER BY process"
    )
    for row in _wanted(connection, statement, names):
        found[row["trial"], row["attempt"]].append(row)
    return found


def _digests(connection: PlainConnection, names: Sequence[Name]) -> dict[Name, str]:
    statement = (
        "SELECT id, attempt, digest FROM {} "
        "JOIN trials ON id = wanted.column1 AND attempt = wanted.column2"
    )
    rows = _wanted(connection, statement, names)
    return {_name(row): row[DIGEST] for row in rows}


def _wanted(
    connection: PlainConnection, statement: str, names: Sequence[Name]
) -> Iterator[dict[str, Any]]:
    """The rows of a statement with a place for a table of these names."""
    for start in range(0, len(names), CHUNK):
        some = names[start : start + CHUNK]
        places = ", ".join(f"(:trial{number}, :attempt{number})" for number in range(len(some)))
        values: dict[str, Any] = {}
        for number, (trial, attempt) in enumerate(some):
            values |= {f"trial{number}": trial, f"attempt{number}": attempt}
        yield from connection.rows(statement.format(f"(VALUES {places}) AS wanted"), values)


def _unsound(connection: PlainConnection, rows: Sequence[Mapping[Any, Any]]) -> Iterator[Name]:
    """Which of these trials have samples that do not match their digests."""
    found = sample_rows(connection, [_name(row) for row in rows])
    for row in rows:
        if not samples_are_sound(row[DIGEST], found[_name(row)]):
            yield _name(row)


def _name(row: Mapping[Any, Any]) -> Name:
    return row["id"], row["attempt"]


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
    for row in uses:
        check_hash(row["document"], row["text"])
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
    found = {}
    for row in _among(connection, "SELECT id, text FROM looks WHERE id", ids):
        # A damaged one is not used: the point is looked at again.
        with suppress(DamagedFileError):
            found[row["id"]] = unseal(row["text"].encode(errors="replace"), row["id"])
    return found


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
