"""Where trials are kept: one SQLite file that several processes may write and any may be killed,
or a PostgreSQL server.

SQLAlchemy takes a fifth of a second of CPU to import, whichever part of it is wanted. So it is
imported when a store that exists is first read or a trial is first written, and not before.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kernloom.errors import KernloomError, StoreError, UsageError, nearest, without_password
from kernloom.measure.trial import Samples, Trial
from kernloom.store.keys import Filter, Key, check_known, parse_key
from kernloom.store.shared import Reader, Writer

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from kernloom.store.database import Database
    from kernloom.store.statements import Sections


def open_store(place: Path | str) -> Store:
    """The store in a file, which appears with the first trial written to it, or at a URL."""
    return Store(place)


class Store:
    """Trials by id and attempt; every added one is on disk before `add` returns."""

    def __init__(self, place: Path | str) -> None:
        self._place = place
        self._made: Database | None = None
        self._writer = Writer()
        self._reader = Reader()
        self._written: set[str] = set()
        """Hashes of sections that are surely in the store."""
        self._adding: Connection | None = None
        """Kept open: taking one from the pool costs as much as the insert."""
        self._engine: Engine | None = None
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
        if self._adding is not None:
            self._adding.close()
        if self._engine is not None:
            self._engine.dispose()
        self._adding = None
        self._engine, self._ready = None, False
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
        from kernloom.store.rows import row_of

        row, sections = row_of(trial, self._writer)
        new = {name: text for name, text in sections.items() if name not in self._written}
        with self._explained():
            try:
                self._insert(row, trial.samples, new)
            except Exception as error:
                # A server that was restarted meanwhile is asked once more.
                if not getattr(error, "connection_invalidated", False):
                    raise
                self._insert(row, trial.samples, new)
        self._written |= new.keys()

    def _insert(
        self, row: Mapping[str, Any], taken: Sequence[Samples], sections: Mapping[str, str]
    ) -> None:
        engine = self._writable()
        from kernloom.store import inserts

        if self._adding is None:
            self._adding = engine.connect()
        try:
            with self._adding.begin():
                inserts.add(self._adding, row, taken, sections)
        except BaseException:
            self._adding.close()
            self._adding = None
            raise

    def latest(self, ids: Iterable[str]) -> dict[str, Trial]:
        """The newest attempt of each id that is known."""
        with self._reading() as connection:
            if connection is None:
                return {}
            from kernloom.store import statements

            wanted = list(dict.fromkeys(ids))
            return statements.latest(connection, self._sections(connection), wanted)

    def samples(self, id: str) -> tuple[Samples, ...]:
        """What each process of a trial's newest attempt measured."""
        with self._reading() as connection:
            if connection is None:
                return ()
            from kernloom.store import statements

            return statements.samples_of_trial(connection, id)

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
        if limit is not None and limit < 0:
            raise UsageError(f"a limit of {limit} makes no sense", hint="Allowed: 0 or more.")
        if isinstance(filters, Mapping):
            filters = [Filter(parse_key(name), value) for name, value in filters.items()]
        wanted = list(filters)
        order = parse_key(sort.removeprefix("-")) if sort else None
        with self._reading() as connection:
            if connection is None:
                for key in (*(asked.key for asked in wanted), *([order] if order else [])):
                    check_known(key, ())
                return []
            from kernloom.store import statements

            down = sort.startswith("-")
            sections = self._sections(connection)
            return statements.search(connection, sections, wanted, limit, order, down, history)

    def check_keys(self, keys: Iterable[Key]) -> None:
        """Refuse keys that no trial has, with the nearest that one has."""
        with self._reading() as connection:
            if connection is None:
                for key in keys:
                    check_known(key, ())
                return
            from kernloom.store import statements

            statements.check_keys(connection, self._sections(connection), keys)

    def count_reuses(self, ids: Iterable[str]) -> None:
        """Note that trials were taken from here; a store that cannot be written is only read."""
        wanted = list(ids)
        if not wanted:
            return
        with suppress(StoreError), self._writing() as connection:
            from kernloom.store import statements

            statements.count_reuses(connection, wanted)

    def reuses(self, ids: Iterable[str]) -> dict[str, int]:
        """How often trials were taken from here instead of being carried out again."""
        with self._reading() as connection:
            if connection is None:
                return {}
            from kernloom.store import statements

            return statements.reuses_of(connection, list(ids))

    def starting_with(self, prefix: str) -> list[Trial]:
        """The newest attempts of the trials whose ids begin so."""
        with self._reading() as connection:
            if connection is None:
                return []
            from kernloom.store import statements

            return statements.starting_with(connection, self._sections(connection), prefix)

    def save_baseline(self, name: str, ids: Iterable[str]) -> None:
        """Put trials under a name, in place of those that were under it."""
        with self._writing() as connection:
            from kernloom.store import rows, statements

            statements.save_baseline(connection, name, list(ids), rows.now())

    def remove_baseline(self, name: str) -> None:
        with self._writing() as connection:
            from kernloom.store import statements

            if not statements.remove_baseline(connection, name):
                raise self._no_baseline(name, connection)

    def baselines(self) -> list[tuple[str, str, int]]:
        """Name, time and number of trials of each baseline."""
        with self._reading() as connection:
            if connection is None:
                return []
            from kernloom.store import statements

            return statements.named_baselines(connection)

    def baseline(self, name: str, filters: Iterable[Filter] = ()) -> list[Trial]:
        """The trials under a name of which all filters hold."""
        with self._reading() as connection:
            if connection is None:
                raise self._no_baseline(name, None)
            from kernloom.store import statements

            ids = set(statements.baseline(connection, name))
            if not ids:
                raise self._no_baseline(name, connection)
        found = [trial for trial in self.query(filters) if trial.id in ids]
        if not found:
            raise UsageError(f"no trial of baseline '{name}' is as asked")
        return found

    def _no_baseline(self, name: str, connection: Connection | None) -> UsageError:
        from kernloom.store import statements

        known = [entry[0] for entry in statements.named_baselines(connection)] if connection else []
        hint = nearest(name, known) if known else "Save one: kernloom results baseline save NAME."
        return UsageError(f"no baseline '{name}'", hint=hint)

    def distinct(self, column: str) -> list[str]:
        """The values that a column has in any trial."""
        with self._reading() as connection:
            if connection is None:
                return []
            from kernloom.store import statements

            return statements.distinct(connection, column)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A connection whose changes are on disk when this ends."""
        with self._explained(), self._writable().begin() as connection:
            yield connection

    def _writable(self) -> Engine:
        """The engine of a store that has its tables."""
        if self._ready and self._engine:
            return self._engine
        if isinstance(self._place, Path):
            self._place.parent.mkdir(parents=True, exist_ok=True)
        engine = self._open()
        if not self._ready:
            self._database().make_tables(engine)
            self._ready = True
        return engine

    @contextmanager
    def _reading(self) -> Iterator[Connection | None]:
        """A connection for reading, or None where nothing was ever written."""
        with self._explained():
            if self._engine is None and not self._exists():
                yield None
                return
            engine = self._open()
            if not self._ready:
                yield None
                return
            with engine.connect() as connection:
                yield connection

    def _exists(self) -> bool:
        """Whether there can be anything to read; asked before SQLAlchemy is imported."""
        return not isinstance(self._place, Path) or self._place.exists()

    def _sections(self, connection: Connection) -> Sections:
        from kernloom.store.statements import Sections

        return Sections(self._reader, connection)

    def _database(self) -> Database:
        if self._made is None:
            from kernloom.store.database import database_at

            self._made = database_at(self._place)
        return self._made

    def _open(self) -> Engine:
        with _collecting_later():
            database = self._database()
            engine = self._engine or database.engine()
            if not self._ready:
                try:
                    self._ready = database.check_version(engine)
                except BaseException:
                    engine.dispose()
                    raise
        self._engine = engine
        return engine

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
            from sqlalchemy.exc import DBAPIError

            if isinstance(error, DBAPIError):
                raise self._database().explain(error) from error
            raise


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
