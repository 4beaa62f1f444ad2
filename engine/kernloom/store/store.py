"""Where trials are kept: one SQLite file that several processes may write and any may be killed.

SQLAlchemy takes a fifth of a second of CPU to import, whichever part of it is wanted. So it is
imported when a store that exists is first read or a trial is first written, and not before.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kernloom.errors import KernloomError, StoreError, UsageError, nearest
from kernloom.measure.trial import Samples, Trial
from kernloom.store.keys import Filter, check_known, parse_key

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


def open_store(path: Path) -> Store:
    """The store at `path`; the file appears with the first trial written to it."""
    return Store(path)


class Store:
    """Trials by id and attempt; every added one is on disk before `add` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        if self._engine is not None:
            self._engine.dispose()
        self._engine, self._ready = None, False

    def add(self, trial: Trial) -> None:
        """Keep a trial as the next attempt of its id, in one commit."""
        with self._writing() as connection:
            from kernloom.store import statements

            statements.add(connection, trial)

    def latest(self, ids: Iterable[str]) -> dict[str, Trial]:
        """The newest attempt of each id that is known."""
        with self._reading() as connection:
            if connection is None:
                return {}
            from kernloom.store import statements

            return statements.latest(connection, list(dict.fromkeys(ids)))

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
            return statements.search(connection, wanted, limit, order, down, history)

    def starting_with(self, prefix: str) -> list[Trial]:
        """The newest attempts of the trials whose ids begin so."""
        with self._reading() as connection:
            if connection is None:
                return []
            from kernloom.store import statements

            return statements.starting_with(connection, prefix)

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
        with self._explained():
            if not self._ready:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            engine = self._open()
            if not self._ready:
                from kernloom.store import sqlite

                sqlite.make_tables(engine)
                self._ready = True
            with engine.begin() as connection:
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection | None]:
        """A connection for reading, or None where nothing was ever written."""
        with self._explained():
            if self._engine is None and not self.path.exists():
                yield None
                return
            engine = self._open()
            if not self._ready:
                yield None
                return
            with engine.connect() as connection:
                yield connection

    def _open(self) -> Engine:
        with _collecting_later():
            from kernloom.store import sqlite

            engine = self._engine or sqlite.connect(self.path)
            if not self._ready:
                try:
                    self._ready = sqlite.check_version(engine, self.path)
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
                f"{self.path} cannot be used: {error.strerror or error}",
                hint="Choose another file with store.path=FILE.",
            ) from error
        except json.JSONDecodeError as error:
            from kernloom.store import sqlite

            raise sqlite.damaged(self.path, f"a trial in it is no JSON: {error}") from error
        except Exception as error:
            from sqlalchemy.exc import DBAPIError

            from kernloom.store import sqlite

            if isinstance(error, DBAPIError):
                raise sqlite.explain(self.path, error) from error
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
