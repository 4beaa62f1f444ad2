"""The edge to the database: SQL written once, carried out by any DB-API driver.

Statements name their values `:name`. A dialect says how its driver marks a value, how a transaction
begins, and which tables there are; everything else is common.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from kernloom.base.errors import ConfigError, KernloomError

SERVERS = ("postgresql+psycopg", "postgresql", "postgres")
"""Schemes of a URL; all mean the same."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
EXAMPLE = "For instance: store=postgres store.url=postgresql+psycopg://USER@HOST/DATABASE"
Values = Mapping[str, Any]


class Connection:
    """A connection to a store; one without tables is `Connection()`, which finds nothing."""

    mark: ClassVar[str] = "?"
    """How the driver marks the place of a value."""
    begins: ClassVar[str] = ""
    """The statement that begins a transaction, where the driver does not do so by itself."""
    begins_alone: ClassVar[str] = ""
    """The same of one in which nobody else changes the tables."""
    lists_columns: ClassVar[str] = ""
    """The statement that gives every `table_name` and `column_name`."""

    def __init__(self, raw: Any = None) -> None:
        self.raw = raw

    def begin(self, alone: bool = False) -> None:
        if statement := self.begins_alone if alone else self.begins:
            self.raw.execute(statement)

    def columns(self) -> dict[str, set[str]]:
        """Each table, and the names of its columns."""
        found: dict[str, set[str]] = {}
        for row in self.rows(self.lists_columns):
            found.setdefault(row["table_name"], set()).add(row["column_name"])
        return found

    def rows(self, statement: str, values: Values = NOTHING) -> list[dict[str, Any]]:
        if self.raw is None:
            return []
        return _named(found := self._execute(self.raw, statement, values), found.fetchall())

    def chunks(
        self, statement: str, values: Values, size: int
    ) -> Iterator[Sequence[dict[str, Any]]]:
        """The rows of a statement, `size` of them in memory at a time."""
        if self.raw is not None:
            found = self._execute(self._cursor(), statement, values)
            while some := found.fetchmany(size):
                yield _named(found, some)

    def run(self, statement: str, rows: Sequence[Values] | None = None) -> int:
        """Execute a statement once, or for each of some rows; how many rows it changed."""
        if rows is not None and not rows:
            return 0
        text, values_of = _positional(statement, self.mark)
        if rows is None or len(rows) == 1:
            return int(self.raw.execute(text, values_of(rows[0]) if rows else ()).rowcount)
        cursor = self.raw.cursor()
        cursor.executemany(text, map(values_of, rows))
        return int(cursor.rowcount)

    def commit(self) -> None:
        self.raw.commit()

    def rollback(self) -> None:
        if self.raw is not None:
            self.raw.rollback()

    def close(self) -> None:
        self.raw.close()

    def _execute(self, cursor: Any, statement: str, values: Values) -> Any:
        text, values_of = _positional(statement, self.mark)
        # SQLite's execute gives a cursor, that of a psycopg cursor gives itself.
        return cursor.execute(text, values_of(values)) if values else cursor.execute(text)

    def _cursor(self) -> Any:
        return self.raw.cursor()


def _named(cursor: Any, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]


@lru_cache
def _positional(statement: str, mark: str) -> tuple[str, Callable[[Values], Sequence[Any]]]:
    """The statement with a mark for each value, and what puts the values in their order."""
    names = re.findall(r":(\w+)", statement)
    if len(names) == 1:
        return re.sub(r":\w+", mark, statement), lambda row: (row[names[0]],)
    return re.sub(r":\w+", mark, statement), itemgetter(*names) if names else lambda row: ()


class Database(ABC):
    """One kind of database: how it is opened and prepared, and what its errors mean."""

    elsewhere: ClassVar[str]
    """What to use instead, for hints."""

    def __init__(self, name: str, definitions: Sequence[str]) -> None:
        self.name = name
        """For people: the file, or the URL without its password."""
        self.definitions = definitions
        """The statements that make whatever table is missing."""

    @abstractmethod
    def connect(self) -> Connection: ...

    @abstractmethod
    def check_foreign(self, connection: Connection, tables: Sequence[str]) -> None:
        """Refuse a place that has no store and where none should be made."""

    @abstractmethod
    def make_tables(self, connection: Connection) -> None: ...

    @abstractmethod
    def read_older(self, connection: Connection, error: Exception) -> None:
        """Make an older store readable that could not be brought up, or raise the error."""

    @abstractmethod
    def explain(self, error: Exception) -> KernloomError | None:
        """What the database said, as what is wrong and what to do; None for other errors."""

    @abstractmethod
    def damaged(self, why: str) -> KernloomError: ...

    def is_gone(self, error: Exception) -> bool:
        """Whether a new connection may do what this error prevented."""
        return False

    def lost(self, connection: Connection) -> int:
        """How many trials were stored and are missing, as far as is known; told once."""
        return 0

    def trial_added(self, connection: Connection) -> None:  # noqa: B027
        """Called after the commit of a trial."""

    def distrust(self) -> None:  # noqa: B027
        """Called when a stored trial was found damaged."""

    def close(self) -> None:  # noqa: B027
        """Called when no connection is open any more."""


def database_at(place: Path | str) -> Database:
    """The database that a file or a URL names."""
    if isinstance(place, Path):
        from kernloom.store.sqlite import Sqlite

        return Sqlite(place)
    from kernloom.store.postgres import Postgres

    return Postgres(place)


def check_url(url: str) -> str:
    """Refuse what is no URL of a server that can hold a store."""
    found = re.match(r"([A-Za-z][\w+.-]*)://", url)
    if found and found[1] in SERVERS:
        return url
    if found and found[1].startswith("sqlite"):
        raise ConfigError("SQLite needs no URL", key="store.url", hint="Say store.path=FILE.")
    # Where the password of any other kind of URL ends, nobody knows.
    shown = f"{found[1]}://..." if found else _shown(url)
    raise ConfigError(f"'{shown}' is not the URL of a store", key="store.url", hint=EXAMPLE)


def _shown(typed: str) -> str:
    """What was typed in the place of a URL, without what may be a password."""
    before, at, place = typed.rpartition("@")
    user, colon, _ = before.partition(":")
    if not re.fullmatch(r"[\w.-]+(:\d+)?/[\w.-]*|[\w.-]+:\d+", place):
        return "(no URL)"
    return f"{user}:***@{place}" if colon else f"{before}{at}{place}"
