"""The store of trials: a SQLite file with any number of writers that may be killed at any time, or
a PostgreSQL server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kernloom.base.errors import KernloomError, StoreError, UsageError, nearest, without_password
from kernloom.measure.trial import Samples, Trial
from kernloom.store import changes, statements, versions
from kernloom.store.database import Connection, Database, database_at
from kernloom.store.keys import Filter, Key, parse_key
from kernloom.store.lookups import Lookups, Name, SourceUse
from kernloom.store.rows import SourceRows, row_of
from kernloom.store.shared import Reader, Writer

if TYPE_CHECKING:
    from kernloom.store.claims import Claims

SHOWN = 3
"""Limit of damaged trials that are named."""


def open_store(place: Path | str, say: Callable[[str], None] | None = None) -> Store:
    """The store in a file, created with its first trial, or at a URL.

    `say` receives messages about damaged or lost trials; the default is standard error.
    """
    return Store(place, say or _say)


class Store:
    """Trials by id and attempt; every added one is on disk before `add` returns."""

    def __init__(self, place: Path | str, say: Callable[[str], None]) -> None:
        self._place = place
        self._say = say
        self._damaged: set[Name] = set()
        """Trials already reported as damaged."""
        self._made: Database | None = None
        self._writer = Writer()
        self._facts_writer = Writer()
        self._source_rows = SourceRows()
        self._reader = Reader()
        self._written: set[str] = set()
        """Hashes of sections known to be stored."""
        self._connection: Connection | None = None
        """Kept open until it fails."""
        self._ready = False
        """Whether the tables exist with a known version."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        row, sections = row_of(trial, self._writer, self._facts_writer)
        sources = None
        if trial.sources:
            sources, text = self._source_rows.row(trial.id, trial.sources)
            sections = (*sections, (sources["document"], text))
        new = {name: text for name, text in sections if name not in self._written}
        try:
            self._insert(row, trial.samples, new, sources)
        except Exception as error:
            with self._explained():
                # Retry once, in case the server was restarted meanwhile.
                if isinstance(error, KernloomError) or not self._database().is_gone(error):
                    raise
                self._insert(row, trial.samples, new, sources)
        self._written.update(new)

    def _insert(
        self,
        row: Mapping[str, Any],
        taken: Sequence[Samples],
        sections: Mapping[str, str],
        sources: Mapping[str, Any] | None,
    ) -> None:
        with self._kept():
            connection = self._writable()
            connection.begin()
            changes.add(connection, row, taken, sections, sources)
            connection.commit()
            self._database().trial_added(connection)

    def claims(self) -> Claims:
        """Claims on trials to be stored here, shared by all writers to this store."""
        from kernloom.store.claims import FileClaims, ServerClaims

        if isinstance(self._place, Path):
            return FileClaims(self._place.with_name(self._place.name + "-claims"))
        return ServerClaims(lambda: self._database().connect())

    def state(self) -> object:
        """A token that is equal later only if nobody else has written in the meantime."""
        with self._reading() as found:
            if not self._ready or not isinstance(self._place, Path):
                # Equal to nothing.
                return object()
            (row,) = found.connection.rows("PRAGMA data_version")
            return found.connection, row["data_version"]

    def latest(self, ids: Iterable[str]) -> dict[str, Trial]:
        """The newest attempt of each id in the store."""
        with self._reading() as found:
            return found.latest(ids)

    def samples(self, id: str) -> tuple[Samples, ...]:
        """The samples of each process of a trial's newest attempt."""
        with self._reading() as found:
            return found.samples(id)

    def samples_of(self, trials: Iterable[Trial]) -> dict[Name, tuple[Samples, ...]]:
        """The samples of each process, by id and attempt, for trials from this store."""
        with self._reading() as found:
            return found.samples_of((trial.id, trial.attempt) for trial in trials)

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
    ) -> Iterator[Trial]:
        """The same trials as an iterator: however many there are, few are in memory at once."""
        if limit is not None and limit < 0:
            raise UsageError(f"a limit of {limit} makes no sense", hint="Allowed: 0 or more.")
        if isinstance(filters, Mapping):
            filters = [Filter(parse_key(name), value) for name, value in filters.items()]
        wanted = list(filters)
        order = parse_key(sort.removeprefix("-")) if sort else None
        with self._asking() as found:
            down = sort.startswith("-")
            yield from statements.search(found, wanted, limit, order, down, history)

    def check_keys(self, keys: Iterable[Key]) -> None:
        """Refuse keys that no trial has, with a hint at the nearest one."""
        with self._asking() as found:
            statements.check_keys(found, keys)

    def starting_with(self, prefix: str) -> list[Trial]:
        """The newest attempts of trials whose ids have this prefix."""
        with self._asking() as found:
            return statements.starting_with(found, prefix)

    def distinct(self, key: str) -> list[Any]:
        """The distinct values of a key in all trials."""
        with self._asking() as found:
            return statements.distinct(found, parse_key(key))

    def facts(self, workload: str, target: str, limit: int) -> list[tuple[str, dict[str, Any]]]:
        """Ids and facts of the newest trials of a workload on a target, for those with facts."""
        with self._reading() as found:
            return found.facts(workload, target, limit)

    def sources(self) -> tuple[list[SourceUse], dict[str, str]]:
        """The kernel sources that trials were planned from, and the sources of each trial."""
        with self._reading() as found:
            return found.sources()

    def count_reuses(
        self, ids: Iterable[str], sources: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Count cache hits, and record by id the sources that trials were planned from; does
        nothing if the store is read-only."""
        wanted = list(ids)
        if not wanted:
            return
        noted = [self._source_rows.row(id, used) for id, used in (sources or {}).items() if used]
        with suppress(StoreError), self._writing() as connection:
            changes.count_reuses(connection, wanted)
            changes.add_documents(connection, {row["document"]: text for row, text in noted})
            changes.note_sources(connection, [row for row, _ in noted])

    def reuses(self, ids: Iterable[str]) -> dict[str, int]:
        """Numbers of cache hits."""
        with self._reading() as found:
            return found.reuses(ids)

    def save_screenings(self, screenings: Mapping[str, Trial]) -> None:
        """Store screening results of points, by their identities."""
        if screenings:
            with self._writing() as connection:
                changes.save_screenings(connection, screenings)

    def screenings(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Earlier screening results: the fields of a trial that are not known in advance."""
        with self._reading() as found:
            return found.screenings(ids)

    def save_baseline(self, name: str, ids: Iterable[str]) -> None:
        """Save a baseline of these trials, replacing the one of this name."""
        with self._writing() as connection:
            changes.save_baseline(connection, name, ids)

    def remove_baseline(self, name: str) -> None:
        with self._writing() as connection:
            if not changes.remove_baseline(connection, name):
                raise _no_baseline(name, self._lookups(connection))

    def baselines(self) -> list[tuple[str, str, int]]:
        """Name, time and number of trials of each saved baseline."""
        with self._reading() as found:
            return found.baselines()

    def baseline(self, name: str, filters: Iterable[Filter] = ()) -> list[Trial]:
        """The trials of a saved baseline that match all filters."""
        with self._reading() as found:
            ids = found.baseline(name)
            if not ids:
                raise _no_baseline(name, found)
        trials = [trial for trial in self.query(filters) if trial.id in ids]
        if not trials:
            raise UsageError(f"no trial of baseline '{name}' is as asked")
        return trials

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A connection whose changes are on disk when the block ends."""
        with self._explained(), self._kept():
            connection = self._writable()
            connection.begin()
            yield connection
            connection.commit()

    def _writable(self) -> Connection:
        """The connection to a store, with its tables created."""
        if self._ready and self._connection:
            return self._connection
        if isinstance(self._place, Path):
            self._place.parent.mkdir(parents=True, exist_ok=True)
        connection = self._open()
        if not self._ready:
            self._database().make_tables(connection)
            self._ready = True
        return connection

    @contextmanager
    def _reading(self) -> Iterator[Lookups]:
        """Lookups on the store; finds nothing if nothing was ever written."""
        with self._explained(), self._kept():
            exists = not isinstance(self._place, Path) or self._place.exists()
            connection = self._open() if self._connection or exists else Connection()
            yield self._lookups(connection if self._ready else Connection())
            connection.rollback()

    @contextmanager
    def _asking(self) -> Iterator[Lookups]:
        """The same on a separate connection, so that the store can be used while rows are being
        read."""
        with self._reading() as found:
            if not self._ready:
                yield found
                return
            with closing(self._database().connect()) as connection:
                yield self._lookups(connection)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep the connection open, unless an error occurs in the block."""
        try:
            yield
        except BaseException:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _lookups(self, connection: Connection) -> Lookups:
        return Lookups(connection, self._reader, self._say_damaged)

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

    def _database(self) -> Database:
        if self._made is None:
            self._made = database_at(self._place)
        return self._made

    def _open(self) -> Connection:
        database = self._database()
        if self._connection is None:
            self._connection = database.connect()
        if not self._ready:
            self._ready = versions.check(self._connection, database)
            if self._ready and (lost := database.lost(self._connection)):
                self._say_lost(lost)
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Translate errors of system and database into messages that a person can act on."""
        try:
            yield
        except KernloomError:
            raise
        except OSError as error:
            raise StoreError(
                f"{self.name} cannot be used: {error.strerror or error}",
                hint="Choose another file with store.path=FILE.",
            ) from error
        except json.JSONDecodeError as error:
            raise self._database().damaged(f"a trial in it is no JSON: {error}") from error
        except Exception as error:
            explained = self._database().explain(error)
            if explained is None:
                raise
            raise explained from error


def _no_baseline(name: str, found: Lookups) -> UsageError:
    known = [entry[0] for entry in found.baselines()]
    hint = nearest(name, known) if known else "Save one: kernloom results baseline save NAME."
    return UsageError(f"no baseline '{name}'", hint=hint)


def _say(note: str) -> None:
    print(f"kernloom: {note}", file=sys.stderr)
