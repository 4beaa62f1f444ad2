"""Lookups by name: trials by id, shared sections by hash, saved baselines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kernloom.base.sealed import DamagedFileError, unseal
from kernloom.config.renamed import with_current_keys
from kernloom.measure.trial import Samples, Trial
from kernloom.store.database import Connection
from kernloom.store.digests import DIGEST, is_sound, samples_are_sound
from kernloom.store.rows import FACTS, SHARED, samples_of, trial_of
from kernloom.store.shared import Reader, check_hash

CHUNK = 500
"""Number of names per statement."""

Name = tuple[str, int]
"""Id and attempt of a trial."""
Row = Mapping[str, Any]
NEWEST = (
    # Also reads a row that the index lacks or has under another id: one of the two is damaged.
    "attempt = coalesce((SELECT max(attempt) FROM trials AS other WHERE other.id = trials.id), "
    "attempt)"
)


@dataclass(frozen=True)
class SourceUse:
    """Kernel sources that trials were planned from, and the times of use."""

    document: str
    """The hash by which trials refer to it."""
    files: Mapping[str, Mapping[str, str]]
    """Kernel and family of sources -> path -> hash."""
    first: str
    """Time of its first trial."""
    last: str
    """Time of its last trial or cache hit."""


class Lookups:
    """Reads a store; sections that trials share are fetched and decoded once.

    Trials that do not match their digests are left out; `damaged` receives their names.
    """

    def __init__(
        self,
        connection: Connection,
        reader: Reader,
        damaged: Callable[[Sequence[Name]], None] = lambda names: None,
    ) -> None:
        self.connection = connection
        self._reader = reader
        self._damaged = damaged

    def trials(self, rows: Iterable[Row]) -> list[Trial]:
        """The trials of these rows, if rows and samples match their digests."""
        found = list(rows)
        taken = sample_rows(self.connection, [_name(row) for row in found])
        bad = {
            _name(row)
            for row in found
            if not is_sound(row) or not samples_are_sound(row[DIGEST], taken[_name(row)])
        }
        if bad:
            self._damaged(sorted(bad))
            found = [row for row in found if _name(row) not in bad]
        self.need(found)
        return [trial_of(row, self.document) for row in found]

    def need(self, rows: Iterable[Row], columns: Sequence[str] = SHARED) -> None:
        """Fetch the sections that the documents of these rows refer to."""
        texts = (row[name] for row in rows for name in columns if name in row)
        self._reader.need(texts, self._sections)

    def _sections(self, hashes: Sequence[str]) -> dict[str, str]:
        rows = self._among("SELECT hash, text FROM documents WHERE hash", hashes)
        return {row["hash"]: row["text"] for row in rows}

    def document(self, text: str) -> Any:
        return with_current_keys(self._reader.document(text))

    def _among(self, before: str, values: Iterable[str], after: str = "") -> Iterator[Row]:
        """The rows of a statement for any of these values."""
        wanted = list(dict.fromkeys(values))
        for start in range(0, len(wanted), CHUNK):
            some = {f"v{n}": value for n, value in enumerate(wanted[start : start + CHUNK])}
            places = ", ".join(f":{name}" for name in some)
            yield from self.connection.rows(f"{before} IN ({places}){after}", some)

    def latest(self, ids: Iterable[str]) -> dict[str, Trial]:
        newest = f" AND {NEWEST}"
        return {
            trial.id: trial
            for trial in self.trials(self._among("SELECT * FROM trials WHERE id", ids, newest))
        }

    def named(self, names: Sequence[Name], columns: str = "trials.*") -> Iterator[Row]:
        """The rows of these attempts."""
        where = "id = wanted.column1 AND attempt = wanted.column2"
        statement = f"SELECT {columns} FROM {{}} JOIN trials ON {where}"  # noqa: S608
        return _wanted(self.connection, statement, names)

    def samples(self, id: str) -> tuple[Samples, ...]:
        """The samples of each process of a trial's newest attempt."""
        attempts = self.connection.rows(
            "SELECT id, max(attempt) AS attempt FROM trials WHERE id = :id GROUP BY id", {"id": id}
        )
        return next(iter(self.samples_of(map(_name, attempts)).values()), ())

    def samples_of(self, names: Iterable[Name]) -> dict[Name, tuple[Samples, ...]]:
        """The samples of each process of these attempts."""
        wanted = list(dict.fromkeys(names))
        rows = sample_rows(self.connection, wanted)
        digests = {_name(row): row[DIGEST] for row in self.named(wanted, "id, attempt, digest")}
        bad = [name for name in digests if not samples_are_sound(digests[name], rows[name])]
        if bad:
            self._damaged(bad)
        return {
            name: tuple(map(samples_of, rows[name]))
            for name in digests
            if name not in bad and rows[name]
        }

    def facts(self, workload: str, target: str, limit: int) -> list[tuple[str, dict[str, Any]]]:
        """Ids and facts of the newest trials of a workload on a target."""
        rows = self.connection.rows(
            "SELECT id, facts FROM trials WHERE workload = :workload AND target = :target "
            "AND facts <> '{}' ORDER BY created DESC LIMIT :count",
            {"workload": workload, "target": target, "count": limit},
        )
        self.need(rows, [FACTS])
        return [(row["id"], self.document(row[FACTS])) for row in rows]

    def sources(self) -> tuple[list[SourceUse], dict[str, str]]:
        """All sources, and trial -> the document of the sources it was planned from."""
        uses = self.connection.rows(
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
        rows = self.connection.rows("SELECT trial, document FROM sources")
        return found, {row["trial"]: row["document"] for row in rows}

    def reuses(self, ids: Iterable[str]) -> dict[str, int]:
        rows = self._among("SELECT trial, times FROM reuses WHERE trial", ids)
        return {row["trial"]: row["times"] for row in rows}

    def screenings(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Earlier screening results, as fields of a trial."""
        found = {}
        for row in self._among("SELECT id, text FROM looks WHERE id", ids):
            # A damaged one is not used: the point is screened again.
            with suppress(DamagedFileError):
                found[row["id"]] = unseal(row["text"].encode(errors="replace"), row["id"])
        return found

    def baseline(self, name: str) -> set[str]:
        """The trial ids of a saved baseline."""
        statement = "SELECT trial FROM baselines WHERE name = :name"
        return {row["trial"] for row in self.connection.rows(statement, {"name": name})}

    def baselines(self) -> list[tuple[str, str, int]]:
        """Name, time and number of trials of each saved baseline."""
        rows = self.connection.rows(
            "SELECT name, max(created) AS created, count(*) AS trials FROM baselines "
            "GROUP BY name ORDER BY name"
        )
        return [(row["name"], row["created"], row["trials"]) for row in rows]


def sample_rows(connection: Connection, names: Sequence[Name]) -> dict[Name, list[Row]]:
    """The rows of samples of these attempts, in the order of their processes."""
    found: dict[Name, list[Row]] = {name: [] for name in names}
    # Joined: SQLite would scan all samples to find those among some pairs.
    statement = (
        "SELECT samples.* FROM {} "
        "JOIN samples ON trial = wanted.column1 AND attempt = wanted.column2 ORDER BY process"
    )
    for row in _wanted(connection, statement, names):
        found[row["trial"], row["attempt"]].append(row)
    return found


def _wanted(connection: Connection, statement: str, names: Sequence[Name]) -> Iterator[Row]:
    """The rows of a statement with a placeholder for a table of these names."""
    for start in range(0, len(names), CHUNK):
        values: dict[str, Any] = {}
        for number, (trial, attempt) in enumerate(names[start : start + CHUNK]):
            values |= {f"trial{number}": trial, f"attempt{number}": attempt}
        places = ", ".join(f"(:trial{n}, :attempt{n})" for n in range(len(values) // 2))
        yield from connection.rows(statement.format(f"(VALUES {places}) AS wanted"), values)


def _name(row: Row) -> Name:
    return row["id"], row["attempt"]
