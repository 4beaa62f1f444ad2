"""What a store asks of the database that holds it. Nothing here imports SQLAlchemy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kernloom.errors import ConfigError, KernloomError, without_password

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.exc import DBAPIError

SERVERS = ("postgresql+psycopg", "postgresql", "postgres")
"""How a URL may begin; all are the same."""
EXAMPLE = "For instance: store=postgres store.url=postgresql+psycopg://USER@HOST/DATABASE"


class Database(Protocol):
    """One kind of database: how it is opened, prepared and understood."""

    name: str
    """For people: the file, or the URL without its password."""

    def engine(self) -> Engine:
        """Nothing is read or made yet, but what stands in the way is named."""

    def begin_alone(self, connection: Connection) -> None:
        """Begin a transaction in which nobody else changes the tables."""

    def check_version(self, engine: Engine) -> bool:
        """Whether the tables are there; a store that this Kernloom cannot read is refused."""

    def make_tables(self, engine: Engine) -> None: ...

    def explain(self, error: DBAPIError) -> KernloomError:
        """What the database says, as what is wrong and what to do."""

    def damaged(self, why: str) -> KernloomError: ...


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
    raise ConfigError(
        f"'{without_password(url) if found else '(no URL)'}' is not the URL of a store",
        key="store.url",
        hint=EXAMPLE,
    )
