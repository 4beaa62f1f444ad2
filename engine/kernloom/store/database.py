"""The database interface: SQL written once, executed by any DB-API driver.

Statements have a `?` for each value, and no other.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from kernloom.base.errors import ConfigError, KernloomError
from kernloom.store.schema import Table

SERVERS = ("postgresql+psycopg", "postgresql", "postgres")
"""URL schemes, all equivalent."""
EXAMPLE = "For instance: store=postgres store.url=postgresql+psycopg://USER@HOST/DATABASE"
Row = Mapping[str, Any]


class Connection:
    """A connection to a store; the base class `Connection()` has no tables and finds nothing."""

    mark: ClassVar[str] = "?"
    """The driver's placeholder for a value."""
    begins: ClassVar[str] = ""
    """The statement that begins a transaction, if the driver does not do so by itself."""
    begins_alone: ClassVar[str] = ""
    """The statement that begins a transaction in which nobody else can change the tables."""
    lists_columns: ClassVar[str] = ""
    """The statement that lists every `table_name` and `column_name`."""

    def __init__(self, raw: Any = None) -> None:
        self.raw = raw

    def begin(self, alone: bool = False) -> None:
        if statement := self.begins_alone if alone else self.begins:
            self.raw.execute(statement)

    def columns(self) -> dict[str, set[str]]:
        """Table -> names of its columns."""
        found: dict[str, set[str]] = {}
        for row in self.rows(self.lists_columns):
            found.setdefault(row["table_name"], set()).add(row["column_name"])
        return found

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        if self.raw is None:
            return []
        found = self._execute(self.raw, statement, values)
        return _named(found, found.fetchall())

    def chunks(
        self, statement: str, values: Sequence[Any], size: int
    ) -> Iterator[list[dict[str, Any]]]:
        """The rows of a statement, with `size` of them in memory at a time."""
        if self.raw is not None:
            found = self._execute(self._cursor(), statement, values)
            while some := found.fetchmany(size):
                yield _named(found, some)

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement; returns the number of changed rows."""
        return int(self._execute(self.raw, statement, values).rowcount)

    def insert(self, table: Table, rows: Iterable[Row], or_else: str = "") -> int:
        """Insert rows; returns their number. `or_else` says what to do with existing ones."""
        names = table.names
        values = [tuple([row[name] for name in names]) for row in rows]
        if not values:
            return 0
        if len(values) == 1:
            return self.run(table.insertion + or_else, values[0])
        cursor = self.raw.cursor()
        cursor.executemany(self._spelled(table.insertion + or_else), values)
        return int(cursor.rowcount)

    def commit(self) -> None:
        self.raw.commit()

    def rollback(self) -> None:
        if self.raw is not None:
            self.raw.rollback()

    def close(self) -> None:
        self.raw.close()

    def _execute(self, cursor: Any, statement: str, values: Sequence[Any]) -> Any:
        text = self._spelled(statement)
        # sqlite3's execute returns a cursor, psycopg's the cursor itself.
        return cursor.execute(text, values) if values else cursor.execute(text)

    def _spelled(self, statement: str) -> str:
        return statement if self.mark == "?" else statement.replace("?", self.mark)

    def _cursor(self) -> Any:
        return self.raw.cursor()


def _named(cursor: Any, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]


class Database(ABC):
    """One kind of database: how to open and prepare it, and how to explain its errors."""

    elsewhere: ClassVar[str]
    """Alternative to suggest in hints."""
    definitions: ClassVar[Sequence[str]]
    """The statements that create missing tables."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Name for people: the file, or the URL without its password."""

    @abstractmethod
    def connect(self) -> Connection: ...

    @abstractmethod
    def check_foreign(self, connection: Connection, tables: Sequence[str]) -> None:
        """Refuse a place that has no store and should not get one."""

    @abstractmethod
    def make_tables(self, connection: Connection) -> None: ...

    @abstractmethod
    def read_older(self, connection: Connection, error: Exception) -> None:
        """Make an older store readable that could not be migrated, or raise the error."""

    @abstractmethod
    def explain(self, error: Exception) -> KernloomError | None:
        """A database error as problem and remedy; None for other errors."""

    @abstractmethod
    def damaged(self, why: str) -> KernloomError: ...

    def is_gone(self, error: Exception) -> bool:
        """Whether the operation may succeed on a new connection."""
        return False

    def lost(self, connection: Connection) -> int:
        """Number of stored trials known to be missing; reported once."""
        return 0

    def trial_added(self, connection: Connection) -> None:  # noqa: B027
        """Called after the commit of a trial."""

    def distrust(self) -> None:  # noqa: B027
        """Called when a stored trial was found damaged."""

    def close(self) -> None:  # noqa: B027
        """Called when the last connection has been closed."""


def database_at(place: Path | str) -> Database:
    """The database for a file or URL."""
    if isinstance(place, Path):
        from kernloom.store.sqlite import Sqlite

        return Sqlite(place)
    from kernloom.store.postgres import Postgres

    return Postgres(place)


def check_url(url: str) -> str:
    """Refuse a text that is not the URL of a server that can hold a store."""
    found = re.match(r"([A-Za-z][\w+.-]*)://", url)
    if found and found[1] in SERVERS:
        return url
    if found and found[1].startswith("sqlite"):
        raise ConfigError("SQLite needs no URL", key="store.url", hint="Say store.path=FILE.")
    # In other kinds of URL the end of the password is unknown.
    shown = f"{found[1]}://..." if found else _shown(url)
    raise ConfigError(f"'{shown}' is not the URL of a store", key="store.url", hint=EXAMPLE)


def _shown(typed: str) -> str:
    """A text given as URL, without anything that may be a password."""
    before, at, place = typed.rpartition("@")
    user, colon, _ = before.partition(":")
    if not re.fullmatch(r"[\w.-]+(:\d+)?/[\w.-]*|[\w.-]+:\d+", place):
        return "(no URL)"
    return f"{user}:***@{place}" if colon else f"{before}{at}{place}"
