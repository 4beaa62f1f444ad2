"""What a store asks of the database that holds it. Nothing here imports SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from kernloom.base.errors import ConfigError, KernloomError

if TYPE_CHECKING:
    from sqlalchemy import Engine

SERVERS = ("postgresql+psycopg", "postgresql", "postgres")
"""How a URL may begin; all are the same."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
EXAMPLE = "For instance: store=postgres store.url=postgresql+psycopg://USER@HOST/DATABASE"


class PlainConnection(Protocol):
    """For what every run asks: SQL that all databases here understand, with `:name` for a value.

    Composing statements with SQLAlchemy costs more than carrying them out, and for a file even
    importing it costs more than a short sweep has to write.
    """

    def begin(self) -> None:
        """Begin a transaction, which `commit` or `rollback` ends."""

    def begin_alone(self) -> None:
        """Begin one in which nobody else changes the tables."""

    def rows(self, statement: str, values: Mapping[str, Any] = NOTHING) -> list[dict[str, Any]]: ...

    def run(self, statement: str, rows: Sequence[Mapping[str, Any]] | None = None) -> int:
        """Carry a statement out once, or for each of some rows; how many rows it changed."""

    def columns(self) -> dict[str, set[str]]:
        """The tables that are there, and the names of their columns."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Database(Protocol):
    """One kind of database: how it is opened, prepared and understood."""

    name: str
    """For people: the file, or the URL without its password."""

    def connect(self) -> PlainConnection:
        """A connection; what stands in the way is named."""

    def engine(self) -> Engine:
        """For questions that SQLAlchemy composes."""

    def check_version(self, connection: PlainConnection) -> bool:
        """Whether the tables are there; a store that this Kernloom cannot read is refused."""

    def make_tables(self, connection: PlainConnection) -> None: ...

    def explain(self, error: Exception) -> KernloomError | None:
        """What the database says, as what is wrong and what to do; None if it said nothing."""

    def damaged(self, why: str) -> KernloomError: ...

    def lost(self, connection: PlainConnection) -> int:
        """How many trials were stored and are not there, as far as is known; told once."""

    def trial_added(self, connection: PlainConnection) -> None:
        """Note that a trial was committed."""

    def close(self) -> None:
        """Let go of whatever connections questions were asked on."""


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
