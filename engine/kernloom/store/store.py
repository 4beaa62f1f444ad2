"""Where trials are kept: one SQLite file that several processes may write and any may be killed,
or a PostgreSQL server.

SQLAlchemy takes a fifth of a second of CPU to import, whichever part of it is wanted. So a store in
a file does without it until a question is asked that it composes.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kernloom.base.errors import KernloomError, StoreError, UsageError, nearest, without_password
from kernloom.measure.trial import Samples, Trial
from kernloom.store import changes, lookups
from kernloom.store.keys import Filter, Key, check_known, parse_key
from kernloom.store.rows import now, row_of, source_row
from kernloom.store.shared import Reader, Writer

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from kernloom.store.claims import Claims
    from kernloom.store.database import Database, PlainConnection


SHOWN = 3
"""How many damaged trials are named."""


def open_store(place: Path | str, say: Callable[[str], None] | None = None) -> Store:
    """The store in a file, which appears with the first trial written to it, or at a URL.

    `say` is told of trials that are damaged or lost; by default, standard error is.
    """
    return Store(place, say or _say)


class Store:
    """Trials by id and attempt; every added one is on disk before `add` returns."""

    def __init__(self, place: Path | str, say: Callable[[str], None]) -> None:
        self._place = place
        self._say = say
        self._damaged: set[lookups.Name] = set()
        """Trials that were said to be damaged."""
        self._made: Database | None = None
        self._writer = Writer()
        self._facts_writer = Writer()
        self._reader = Reader()
        self._written: set[str] = set()
        """Hashes of sections that are surely in the store."""
        self._connection: PlainConnection | None = None
        """Kept open until something goes wrong with it."""
        self._ready = False
        """The tables are there and of a version we know."""

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
        """For people: the file, or the URL without its password."""
        return without_password(str(self._place))

    @property
    def file(self) -> Path | None:
        """Where it is on this machine; a server's is not."""
        return self._place if isinstance(self._place, Path) else None

    def add(self, trial: Trial) -> None:
        """Keep a trial as the next attempt of its id, in one commit."""
        row, sections = row_of(trial, self._writer, self._facts_writer)
        new = {name: text for name, text in sections if name not in self._written}
        sources = None
        if trial.sources:
            sources, text = source_row(trial.id, trial.sources)
            if sources["document"] not in self._written:
                new[sources["document"]] = text
        try:
            self._insert(row, trial.samples, new, sources)
        except Exception as error:
            with self._explained():
                # A server that was restarted meanwhile is asked once more.
                if not getattr(error, "connection_invalidated", False):
                    raise
                self._insert(row, trial.samples, new, sources)
        self._written.update(new)

    def claims(self) -> Claims:
        """Claims on what is to be stored here, shared by all who write to this store."""
        from kernloom.store.claims import FileClaims, ServerClaims

        if isinstance(self._place, Path):
            return FileClaims(self._place.with_name(self._place.name + "-claims"))
        return ServerClaims(lambda: self._database().connect())

    def state(self) -> object:
        """Something that is equal later on only if nobody else has written in the meantime."""
        with self._reading() as connection:
            if connection is None or not isinstance(self._place, Path):
                # Equal to nothing.
                return object()
            (row,) = connection.rows("PRAGMA data_version")
            return connection, row["data_version"]

    def _insert(
        self,
        row: Mapping[str, Any],
        taken: Sequence[Samples],
        sections: Mapping[str, str],
        sources: Mapping[str, Any] | None,
    ) -> None:
        connection = self._writable()
        try:
            connection.begin()
            changes.add(connection, row, taken, sections, sources)
            connection.commit()
            self._database().trial_added(connection)
        except BaseException:
            self._hang_up()
            raise

    def latest(self, ids: Iterable[str]) -> dict[str, Trial]:
        """The newest attempt of each id that is known."""
        with self._reading() as connection:
            if connection is None:
                return {}
            wanted = list(dict.fromkeys(ids))
            return lookups.latest(connection, self._sections(connection), wanted)

    def samples(self, id: str) -> tuple[Samples, ...]:
        """What each process of a trial's newest attempt measured."""
        with self._reading() as connection:
            if connection is None:
                return ()
            return lookups.samples_of_trial(connection, self._sections(connection), id)

    def samples_of(self, trials: Iterable[Trial]) -> dict[tuple[str, int], tuple[Samples, ...]]:
        """What each process measured, by id and attempt of trials that came from here."""
        names = list(dict.fromkeys((trial.id, trial.attempt) for trial in trials))
        with self._reading() as connection:
            if connection is None:
                return {}
            return lookups.samples_of_attempts(connection, self._sections(connection), names)

    def query(
        self,
        filters: Mapping[str, str] | Iterable[Filter] = (),
        limit: int | None = None,
        sort: str = "",
        *,
        history: bool = False,
    ) -> list[Trial]:
        """Trials of which all filters hold, newest first or sorted by a key (`-key`: down).

        A mapping asks for trials whose keys have just these values. Only the newest attempt of
        each is asked, unless `history` asks for all.
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
        """The same trials one by one: however many there are, few are in memory at once."""
        if limit is not None and limit < 0:
            raise UsageError(f"a limit of {limit} makes no sense", hint="Allowed: 0 or more.")
        if isinstance(filters, Mapping):
            filters = [Filter(parse_key(name), value) for name, value in filters.items()]
        wanted = list(filters)
        order = parse_key(sort.removeprefix("-")) if sort else None
        with self._asking() as asking:
            if asking is None:
                for key in (*(asked.key for asked in wanted), *([order] if order else [])):
                    check_known(key, {})
                return
            from kernloom.store import statements

            connection, sections = asking
            down = sort.startswith("-")
            yield from statements.search(connection, sections, wanted, limit, order, down, history)

    def check_keys(self, keys: Iterable[Key]) -> None:
        """Refuse keys that no trial has, with the nearest that one has."""
        with self._asking() as asking:
            if asking is None:
                for key in keys:
                    check_known(key, {})
                return
            from kernloom.store import statements

            connection, sections = asking
            statements.check_keys(connection, sections, keys)

    def count_reuses(
        self, ids: Iterable[str], sources: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Note that trials were taken from here, and by id from which sources they were planned;
        a store that cannot be written is only read."""
        wanted = list(ids)
        if not wanted:
            return
        noted = [source_row(id, found) for id, found in (sources or {}).items() if found]
        with suppress(StoreError), self._writing() as connection:
            changes.count_reuses(connection, wanted)
            if noted:
                changes.add_documents(connection, {row["document"]: text for row, text in noted})
                changes.note_sources(connection, [row for row, _ in noted])

    def facts(self, workload: str, target: str, limit: int) -> list[tuple[str, dict[str, Any]]]:
        """Ids and facts of the newest trials of a workload on a target, as far as they have any."""
        with self._reading() as connection:
            if connection is None:
                return []
            sections = self._sections(connection)
            return lookups.facts(connection, sections, workload, target, limit)

    def sources(self) -> tuple[list[lookups.SourceUse], dict[str, str]]:
        """The kernel sources that trials were planned from, and which of them each trial was."""
        with self._reading() as connection:
            if connection is None:
                return [], {}
            return lookups.sources(connection)

    def reuses(self, ids: Iterable[str]) -> dict[str, int]:
        """How often trials were taken from here instead of being carried out again."""
        with self._reading() as connection:
            if connection is None:
                return {}
            return lookups.reuses_of(connection, list(ids))

    def keep_looks(self, looks: Mapping[str, Trial]) -> None:
        """Keep what came of looks at points of a screening, by their identities."""
        if looks:
            with self._writing() as connection:
                changes.keep_looks(connection, looks, now())

    def looks(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What came of earlier looks: those fields of a trial that are not known beforehand."""
        with self._reading() as connection:
            if connection is None:
                return {}
            return lookups.looks(connection, list(ids))

    def starting_with(self, prefix: str) -> list[Trial]:
        """The newest attempts of the trials whose ids begin so."""
        with self._asking() as asking:
            if asking is None:
                return []
            from kernloom.store import statements

            connection, sections = asking
            return statements.starting_with(connection, sections, prefix)

    def save_baseline(self, name: str, ids: Iterable[str]) -> None:
        """Put trials under a name, in place of those that were under it."""
        with self._writing() as connection:
            changes.save_baseline(connection, name, list(ids), now())

    def remove_baseline(self, name: str) -> None:
        with self._writing() as connection:
            if not changes.remove_baseline(connection, name):
                raise self._no_baseline(name, connection)

    def baselines(self) -> list[tuple[str, str, int]]:
        """Name, time and number of trials of each baseline."""
        with self._reading() as connection:
            if connection is None:
                return []
            return lookups.named_baselines(connection)

    def baseline(self, name: str, filters: Iterable[Filter] = ()) -> list[Trial]:
        """The trials under a name of which all filters hold."""
        with self._reading() as connection:
            if connection is None:
                raise self._no_baseline(name, None)
            ids = set(lookups.baseline(connection, name))
            if not ids:
                raise self._no_baseline(name, connection)
        found = [trial for trial in self.query(filters) if trial.id in ids]
        if not found:
            raise UsageError(f"no trial of baseline '{name}' is as asked")
        return found

    def _no_baseline(self, name: str, connection: PlainConnection | None) -> UsageError:
        known = [entry[0] for entry in lookups.named_baselines(connection)] if connection else []
        hint = nearest(name, known) if known else "Save one: kernloom results baseline save NAME."
        return UsageError(f"no baseline '{name}'", hint=hint)

    def distinct(self, key: str) -> list[Any]:
        """The values that a key has in any trial."""
        with self._asking() as asking:
            if asking is None:
                return []
            from kernloom.store import statements

            connection, sections = asking
            return statements.distinct(connection, sections, parse_key(key))

    @contextmanager
    def _writing(self) -> Iterator[PlainConnection]:
        """A connection whose changes are on disk when this ends."""
        with self._explained(), self._kept():
            connection = self._writable()
            connection.begin()
            yield connection
            connection.commit()

    def _writable(self) -> PlainConnection:
        """The connection to a store that has its tables."""
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
    def _reading(self) -> Iterator[PlainConnection | None]:
        """A connection for reading, or None where nothing was ever written."""
        with self._explained(), self._kept():
            if self._connection is None and not self._exists():
                yield None
                return
            connection = self._open()
            if not self._ready:
                yield None
                return
            yield connection
            connection.rollback()

    @contextmanager
    def _asking(self) -> Iterator[tuple[Connection, lookups.Sections] | None]:
        """What a question that SQLAlchemy composes needs, or None, as above."""
        with self._reading() as plain:
            if plain is None:
                yield None
                return
            with _collecting_later():
                engine = self._database().engine()
            with engine.connect() as connection:
                yield connection, self._sections(plain)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep the connection for what follows, unless something goes wrong with it."""
        try:
            yield
        except BaseException:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _exists(self) -> bool:
        """Whether there can be anything to read."""
        return not isinstance(self._place, Path) or self._place.exists()

    def _sections(self, connection: PlainConnection) -> lookups.Sections:
        return lookups.Sections(self._reader, connection, self._say_damaged)

    def _say_damaged(self, names: Sequence[lookups.Name]) -> None:
        """Say once of each trial that what is stored of it is not what was measured."""
        new = [name for name in names if name not in self._damaged]
        if not new:
            return
        self._damaged.update(new)
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
            "cut short; the command that measured them measures them again"
        )

    def _database(self) -> Database:
        if self._made is None:
            from kernloom.store.database import database_at

            self._made = database_at(self._place)
        return self._made

    def _open(self) -> PlainConnection:
        with _collecting_later():
            database = self._database()
            if self._connection is None:
                self._connection = database.connect()
        if not self._ready:
            self._ready = database.check_version(self._connection)
            if self._ready and (lost := database.lost(self._connection)):
                self._say_lost(lost)
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the system and the database say into what a person can act on."""
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


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Looking for garbage while SQLAlchemy defines its classes is a fifth of its import."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _say(note: str) -> None:
    print(f"kernloom: {note}", file=sys.stderr)
