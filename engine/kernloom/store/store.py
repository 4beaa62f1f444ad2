"""The store of trials: a SQLite file with any number of writers that may be killed at any time, or
a PostgreSQL server."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kernloom.base.errors import (
    KernloomError,
    StoreError,
    UnavailableError,
    UsageError,
    nearest,
    without_password,
)
from kernloom.base.files import canonical_json
from kernloom.base.sealed import DamagedFileError, seal, unseal
from kernloom.measure.trial import Samples, Trial
from kernloom.store import statements, versions
from kernloom.store.database import Connection, Database, database_at
from kernloom.store.keys import Filter, Key, parse_key
from kernloom.store.lookups import NEWEST, Lookups, Name, SourceUse, batches, name_of, rows_for
from kernloom.store.rows import FACTS, Row, now, row_of, sample_row, trial_digest
from kernloom.store.schema import BASELINES, DOCUMENTS, REUSES, SAMPLES, SCREENINGS, SOURCES, TRIALS
from kernloom.store.shared import Reader, Writer, check_hash, hash_of

if TYPE_CHECKING:
    from kernloom.store.claims import Claims

SHOWN = 3
"""Limit of damaged trials that are named."""
TRIES = 1000
"""Retries when another writer takes the same attempt number; more means another problem."""
_SCREENING_FIELDS = ("status", "verified", "metrics", "conditions", "stage", "message", "stderr")
"""The fields of a trial that are not known in advance."""
_OR_LEAVE = " ON CONFLICT DO NOTHING"
_Result = TypeVar("_Result")


def open_store(place: Path | str, say: Callable[[str], None] | None = None) -> Store:
    """The store in a file, created with its first trial, or at a URL.

    `say` receives messages about damaged or lost trials; the default is standard error.
    """
    return Store(place, say or (lambda note: print(f"kernloom: {note}", file=sys.stderr)))


class Store:
    """Trials by id and attempt; every added one is on disk before `add` returns.

    It keeps one connection, and uses it for one operation at a time. Rows are written in the same
    order everywhere, because writers could deadlock otherwise.
    """

    def __init__(self, place: Path | str, say: Callable[[str], None]) -> None:
        self._place = place
        self._say = say
        self._damaged: set[Name] = set()
        """Trials already reported as damaged."""
        self._made: Database | None = None
        self._writer = Writer()
        self._reader = Reader()
        self._sources: tuple[Any, str, str] = (None, "", "")
        """The last sources, their hash and text: most trials have the same as the previous one."""
        self._written: set[str] = set()
        """Hashes of sections known to be stored."""
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        """Kept open until it fails."""
        self._process = 0
        """The process that opened the connection; a fork of it needs another one."""
        self._ready = False
        """Whether the tables exist with a known version."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._hang_up()
        if self._made is not None:
            self._made.close()
        self._ready = False
        self._written.clear()

    @property
    def name(self) -> str:
        """Name for people: the file, or the URL without its password."""
        return without_password(str(self._place))

    @property
    def file(self) -> Path | None:
        """The store's file on this machine; None for a server."""
        return self._place if isinstance(self._place, Path) else None

    def add(self, trial: Trial) -> None:
        """Store a trial as the next attempt of its id, in one commit."""
        row, sections = row_of(trial, self._writer)
        samples = [sample_row(trial.id, process, s) for process, s in enumerate(trial.samples)]
        sources = []
        if trial.sources:
            sources = [self._source_row(trial.id, trial.sources, sections)]
        new = {name: text for name, text in sections.items() if name not in self._written}

        def insert(connection: Connection) -> None:
            _add_documents(connection, new)
            attempt = _add_trial(connection, row, samples)
            connection.insert(SAMPLES, [{**sample, "attempt": attempt} for sample in samples])
            _note_sources(connection, sources)

        self._write(insert, adds=True)
        self._written.update(new)

    def _source_row(self, trial: str, sources: Mapping[str, Any], texts: dict[str, str]) -> Row:
        """A row with the sources of a trial; adds the text that it refers to."""
        if self._sources[0] is not sources:
            text = canonical_json(sources)
            self._sources = (sources, hash_of(text), text)
        _, name, text = self._sources
        texts[name] = text
        return {"trial": trial, "used": now(), "document": name}

    def claims(self) -> Claims:
        """Claims on trials to be stored here, shared by all writers to this store."""
        from kernloom.store.claims import FileClaims, ServerClaims

        if isinstance(self._place, Path):
            return FileClaims(self._place.with_name(self._place.name + "-claims"))
        return ServerClaims(lambda: self._database().connect())

    def state(self) -> object:
        """A token that is equal later only if nobody else has written in the meantime."""

        def token(found: Lookups) -> object:
            if not self._ready or not isinstance(self._place, Path):
                # Equal to nothing.
                return object()
            (row,) = found.connection.rows("PRAGMA data_version")
            return found.connection, row["data_version"]

        return self._read(token)

    def latest(self, ids: Iterable[str]) -> dict[str, Trial]:
        """The newest attempt of each id in the store."""
        statement = "SELECT trials.* FROM {} JOIN trials ON id = wanted.column1 WHERE " + NEWEST  # noqa: S608
        wanted = [(id,) for id in ids]
        found = self._read(lambda it: it.trials(rows_for(it.connection, statement, wanted)))
        return {trial.id: trial for trial in found}

    def history(self, id: str, limit: int) -> list[Trial]:
        """The newest attempts of a trial, newest first."""
        return self.query([Filter(parse_key("id"), id)], limit, history=True)

    def samples(self, id: str) -> tuple[Samples, ...]:
        """The samples of each process of a trial's newest attempt."""
        newest = "SELECT id, max(attempt) AS attempt FROM trials WHERE id = ? GROUP BY id"
        found = self._read(lambda it: it.samples(map(name_of, it.connection.rows(newest, [id]))))
        return next(iter(found.values()), ())

    def samples_of(self, trials: Iterable[Trial]) -> dict[Name, tuple[Samples, ...]]:
        """The samples of each process, by id and attempt, for trials from this store."""
        names = [(trial.id, trial.attempt) for trial in trials]
        return self._read(lambda found: found.samples(names))

    def query(
        self,
        filters: Mapping[str, str] | Iterable[Filter] = (),
        limit: int | None = None,
        sort: str = "",
        *,
        history: bool = False,
    ) -> list[Trial]:
        """Trials that match all filters, newest first or sorted by a key (`-key`: descending).

        A mapping selects trials whose keys have exactly these values. Only the newest attempt of
        each is searched, unless `history` is set.
        """
        return list(self.stream(filters, limit, sort, history=history))

    def stream(
        self,
        filters: Mapping[str, str] | Iterable[Filter] = (),
        limit: int | None = None,
        sort: str = "",
        *,
        history: bool = False,
        without: Container[Name] = (),
    ) -> Iterator[Trial]:
        """The same trials as an iterator: however many there are, few are in memory at once, and
        the store can be used meanwhile. Those named by `without` are not read."""
        if limit is not None and limit < 0:
            raise UsageError(f"a limit of {limit} makes no sense", hint="Allowed: 0 or more.")
        if isinstance(filters, Mapping):
            filters = [Filter(parse_key(name), value) for name, value in filters.items()]
        wanted, down = list(filters), sort.startswith("-")
        order = parse_key(sort.removeprefix("-")) if sort else None
        names = self._read(
            lambda found: statements.search(found, wanted, limit, order, down, history)
        )
        for some in batches([name for name in names if name not in without]):
            yield from self._read(partial(Lookups.named, names=some))

    def check_keys(self, keys: Iterable[Key]) -> None:
        """Refuse keys that no trial has, with a hint at the nearest one."""
        wanted = list(keys)
        self._read(lambda found: statements.check_keys(found, wanted))

    def starting_with(self, prefix: str) -> list[Trial]:
        """The newest attempts of trials whose ids have this prefix."""
        return self.query([Filter(parse_key("id"), prefix)])

    def distinct(self, key: str) -> list[Any]:
        """The distinct values of a key in all trials."""
        return self._read(lambda found: statements.distinct(found, parse_key(key)))

    def facts(self, workload: str, target: str, limit: int) -> list[tuple[str, dict[str, Any]]]:
        """Ids and facts of the newest trials of a workload on a target, for those with facts."""
        statement = (
            "SELECT id, facts FROM trials WHERE workload = ? AND target = ? AND facts <> '{}' "
            "ORDER BY created DESC LIMIT ?"
        )

        def read(found: Lookups) -> list[tuple[str, dict[str, Any]]]:
            rows = found.connection.rows(statement, (workload, target, limit))
            found.need(rows, [FACTS])
            return [(row["id"], found.document(row[FACTS])) for row in rows]

        return self._read(read)

    def sources(self) -> tuple[list[SourceUse], dict[str, str]]:
        """The kernel sources that trials were planned from, and the document of each trial's."""
        statement = (
            "SELECT sources.document AS document, documents.text AS text, "
            "min(trials.created) AS first, max(sources.used) AS last FROM sources "
            "JOIN trials ON trials.id = sources.trial "
            "JOIN documents ON documents.hash = sources.document "
            "GROUP BY sources.document, documents.text"
        )

        def read(found: Lookups) -> tuple[list[SourceUse], dict[str, str]]:
            uses = []
            for row in found.connection.rows(statement):
                check_hash(row["document"], row["text"])
                files = json.loads(row["text"])
                uses.append(SourceUse(row["document"], files, row["first"], row["last"]))
            rows = found.connection.rows("SELECT trial, document FROM sources")
            return uses, {row["trial"]: row["document"] for row in rows}

        return self._read(read)

    def count_reuses(
        self, ids: Iterable[str], sources: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Count cache hits, and record by id the sources that trials were planned from; does
        nothing if the store is read-only."""
        hits = [{"trial": id, "times": 1} for id in sorted(set(ids))]
        texts: dict[str, str] = {}
        used = [self._source_row(id, of, texts) for id, of in (sources or {}).items() if of]

        def count(connection: Connection) -> None:
            again = " ON CONFLICT (trial) DO UPDATE SET times = reuses.times + 1"
            connection.insert(REUSES, hits, again)
            _add_documents(connection, texts)
            _note_sources(connection, used)

        if hits:
            with suppress(StoreError):
                self._write(count)

    def reuses(self, ids: Iterable[str]) -> dict[str, int]:
        """Numbers of cache hits."""
        statement = "SELECT trial, times FROM {} JOIN reuses ON trial = wanted.column1"
        return {row["trial"]: row["times"] for row in self._rows_for(statement, ids)}

    def save_screenings(self, screenings: Mapping[str, Trial]) -> None:
        """Store screening results of points, by their identities, replacing earlier ones."""
        created = now()
        rows = []
        for id in sorted(screenings):
            fields = {name: getattr(screenings[id], name) for name in _SCREENING_FIELDS}
            rows.append({"id": id, "created": created, "text": seal(fields, id)})
        replace = " ON CONFLICT (id) DO UPDATE SET created = excluded.created, text = excluded.text"
        if rows:
            self._write(lambda connection: connection.insert(SCREENINGS, rows, replace))

    def screenings(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Earlier screening results: the fields of a trial that are not known in advance."""
        statement = "SELECT id, text FROM {} JOIN looks ON id = wanted.column1"
        found = {}
        for row in self._rows_for(statement, ids):
            # A damaged one is not used: the point is screened again.
            with suppress(DamagedFileError):
                found[row["id"]] = unseal(row["text"].encode(errors="replace"), row["id"])
        return found

    def save_baseline(self, name: str, ids: Iterable[str]) -> None:
        """Save a baseline of exactly these trials, replacing the one of this name."""
        created = now()
        rows = [{"name": name, "trial": id, "created": created} for id in ids]

        def save(connection: Connection) -> None:
            connection.run("DELETE FROM baselines WHERE name = ?", [name])
            connection.insert(BASELINES, rows)

        self._write(save)

    def remove_baseline(self, name: str) -> None:
        delete = "DELETE FROM baselines WHERE name = ?"
        if not self._write(lambda connection: connection.run(delete, [name])):
            raise self._no_baseline(name)

    def baselines(self) -> list[tuple[str, str, int]]:
        """Name, time and number of trials of each saved baseline."""
        statement = (
            "SELECT name, max(created) AS created, count(*) AS trials FROM baselines "
            "GROUP BY name ORDER BY name"
        )
        rows = self._read(lambda found: found.connection.rows(statement))
        return [(row["name"], row["created"], row["trials"]) for row in rows]

    def baseline(self, name: str, filters: Iterable[Filter] = ()) -> list[Trial]:
        """The trials of a saved baseline that match all filters."""
        statement = "SELECT trial FROM baselines WHERE name = ?"
        ids = {r["trial"] for r in self._read(lambda it: it.connection.rows(statement, [name]))}
        if not ids:
            raise self._no_baseline(name)
        trials = [trial for trial in self.query(filters) if trial.id in ids]
        if not trials:
            raise UsageError(f"no trial of baseline '{name}' is as asked")
        return trials

    def _no_baseline(self, name: str) -> UsageError:
        known = [entry[0] for entry in self.baselines()]
        hint = nearest(name, known) if known else "Save one: kernloom results baseline save NAME."
        return UsageError(f"no baseline '{name}'", hint=hint)

    def _rows_for(self, statement: str, ids: Iterable[str]) -> list[dict[str, Any]]:
        wanted = [(id,) for id in ids]
        return self._read(lambda found: list(rows_for(found.connection, statement, wanted)))

    def _read(self, work: Callable[[Lookups], _Result]) -> _Result:
        """Do work that reads the store, which finds nothing if nothing was ever written."""

        def read() -> _Result:
            exists = not isinstance(self._place, Path) or self._place.exists()
            connection = self._open() if self._connection or exists else Connection()
            found = connection if self._ready else Connection()
            result = work(Lookups(found, self._reader, self._say_damaged))
            connection.rollback()
            return result

        return self._done(read)

    def _write(self, work: Callable[[Connection], _Result], adds: bool = False) -> _Result:
        """Do work in a transaction, creating the store if needed; its changes are on disk when this
        returns. `adds` says that a trial is added."""

        def write() -> _Result:
            connection = self._writable()
            connection.begin()
            result = work(connection)
            connection.commit()
            if adds:
                self._database().trial_added(connection)
            return result

        return self._done(write)

    def _done(self, work: Callable[[], _Result]) -> _Result:
        """The result of work with the connection, which is closed if the work fails."""
        with self._lock:
            kept = self._connection is not None
            try:
                return work()
            except BaseException as error:
                self._hang_up()
                if isinstance(error, UnavailableError):
                    # What is there next time may be another store.
                    self._ready = False
                    self._written.clear()
                if isinstance(error, KernloomError) or not isinstance(error, Exception):
                    raise
                if kept and self._database().is_gone(error):
                    # Once more on a new connection: the server may have been restarted meanwhile.
                    return self._done(work)
                explained = self._explained(error)
                if explained is None:
                    raise
                raise explained from error

    def _explained(self, error: Exception) -> KernloomError | None:
        """An error of system or database as a message that a person can act on."""
        if isinstance(error, OSError):
            return StoreError(
                f"{self.name} cannot be used: {error.strerror or error}",
                hint="Choose another file with store.path=FILE.",
            )
        if isinstance(error, json.JSONDecodeError):
            return self._database().damaged(f"a trial in it is no JSON: {error}")
        return self._database().explain(error)

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._process == os.getpid():
            connection.close()

    def _database(self) -> Database:
        if self._made is None:
            self._made = database_at(self._place)
        return self._made

    def _open(self) -> Connection:
        database = self._database()
        if self._process != os.getpid():
            self._connection, self._process = None, os.getpid()
        if self._connection is None:
            self._connection = database.connect()
        if not self._ready:
            self._ready = versions.check(self._connection, database)
            if self._ready and (lost := database.lost(self._connection)):
                self._say_lost(lost)
        return self._connection

    def _writable(self) -> Connection:
        """The connection to a store, with its tables created."""
        if isinstance(self._place, Path) and self._connection is None:
            self._place.parent.mkdir(parents=True, exist_ok=True)
        connection = self._open()
        if not self._ready:
            self._database().make_tables(connection)
            self._ready = True
        return connection

    def _say_damaged(self, names: Sequence[Name]) -> None:
        """Report each damaged trial once: its stored data is not what was measured."""
        new = [name for name in names if name not in self._damaged]
        if not new:
            return
        self._damaged.update(new)
        self._database().distrust()
        shown = ", ".join(id for id, _ in new[:SHOWN])
        more = f" and {len(new) - SHOWN} more" if len(new) > SHOWN else ""
        trials = "1 trial does not match its digest and is"
        if len(new) > 1:
            trials = f"{len(new)} trials do not match their digests and are"
        self._say(
            f"{self.name} is damaged: {trials} left out ({shown}{more}); the command that measured "
            "them measures them again"
        )

    def _say_lost(self, lost: int) -> None:
        trials = "1 trial was" if lost == 1 else f"{lost} trials were"
        self._say(
            f"{trials} lost from {self.name}: its log, which held the newest ones, is gone or was "
            "cut short; `kernloom results repair` takes from the backup what that has, and the "
            "command that measured them measures the others again"
        )


def _add_trial(connection: Connection, row: Row, samples: Sequence[Row]) -> int:
    """Insert a trial as the next attempt of its id; returns the number of the attempt.

    SQLite permits one writer at a time; in PostgreSQL another writer may get the same number, and
    then the second inserts nothing.
    """
    following = "SELECT coalesce(max(attempt), 0) + 1 AS attempt FROM trials WHERE id = ?"
    for _ in range(TRIES):
        (found,) = connection.rows(following, [row["id"]])
        numbered = {**row, **found}
        numbered["digest"] = trial_digest(numbered, samples)
        if connection.insert(TRIALS, [numbered], _OR_LEAVE) == 1:
            return int(found["attempt"])
    raise StoreError(f"trial {row['id']} was refused a number {TRIES} times")


def _add_documents(connection: Connection, texts: Mapping[str, str]) -> None:
    """Insert texts by their hashes, unless they are stored already."""
    rows = [{"hash": name, "text": texts[name]} for name in sorted(texts)]
    connection.insert(DOCUMENTS, rows, _OR_LEAVE)


def _note_sources(connection: Connection, rows: Iterable[Row]) -> None:
    """Record the sources from which trials were planned just now."""
    replace = (
        " ON CONFLICT (trial) DO UPDATE SET used = excluded.used, document = excluded.document"
    )
    connection.insert(SOURCES, sorted(rows, key=lambda row: str(row["trial"])), replace)
