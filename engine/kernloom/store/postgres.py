"""PostgreSQL in particular: one server for the stores of many writers."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, ProgrammingError

from kernloom.base.errors import (
    ConfigError,
    KernloomError,
    StoreError,
    UnavailableError,
    without_password,
)
from kernloom.store import versions
from kernloom.store.database import EXAMPLE, NOTHING, PlainConnection, check_url
from kernloom.store.schema import META, TABLES, definitions

PACKAGE = "psycopg[binary]"
CONNECT_SECONDS = 10
DRIVER = "postgresql+psycopg"
NOT_ALLOWED = ("42501", "25006")
"""States of errors for want of privileges, and in a transaction that may only read."""
NOT_LET_IN = ("authentication failed", "no password", "no pg_hba.conf entry")
_TABLES_LOCK = 0x6B65726E
"""The number of the advisory lock under which tables are made and changed."""


# Whatever the language of a server, its order is that of SQLite.
_DEFINITIONS = tuple(definitions(name='VARCHAR COLLATE "C"', by_key=""))
_clause = lru_cache(text)


class ServerConnection:
    """A connection to the server; a transaction begins with the first statement."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin(self) -> None:
        pass

    def begin_alone(self) -> None:
        self._connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TABLES_LOCK})")

    def rows(self, statement: str, values: Mapping[str, Any] = NOTHING) -> list[dict[str, Any]]:
        found = self._connection.execute(_clause(statement), values)
        return [dict(row) for row in found.mappings()]

    def run(self, statement: str, rows: Sequence[Mapping[str, Any]] | None = None) -> int:
        if rows is not None and not rows:
            return 0
        return self._connection.execute(_clause(statement), rows and list(rows)).rowcount

    def columns(self) -> dict[str, set[str]]:
        found = inspect(self._connection).get_multi_columns()
        return {table: {each["name"] for each in columns} for (_, table), columns in found.items()}

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


class Postgres:
    """A store on a server."""

    def __init__(self, url: str) -> None:
        try:
            self._url = make_url(check_url(url)).set(drivername=DRIVER)
        except (ArgumentError, ValueError):
            # What it says may have the password in it.
            raise ConfigError("is not a URL", key="store.url", hint=EXAMPLE) from None
        self._engine: Engine | None = None
        self.name = without_password(self._url.render_as_string(hide_password=True))

    def connect(self) -> PlainConnection:
        return ServerConnection(self.engine().connect())

    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = self._made()
        return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
        self._engine = None

    def _made(self) -> Engine:
        if not self._url.database:
            raise ConfigError(f"{self.name} names no database", key="store.url", hint=EXAMPLE)
        given = {} if "connect_timeout" in self._url.query else {"connect_timeout": CONNECT_SECONDS}
        try:
            return create_engine(self._url, connect_args=given)
        except (ModuleNotFoundError, NoSuchModuleError, ImportError) as error:
            raise UnavailableError(
                f"{self.name} needs the Python package {PACKAGE}: {error}",
                hint=f"Install it: {sys.executable} -m pip install '{PACKAGE}'",
            ) from None

    def check_version(self, connection: PlainConnection) -> bool:
        try:
            text = versions.version_of(connection)
        except ProgrammingError as error:
            if _state(error) != "42P01":
                raise
            connection.rollback()
            self._check_schema(connection)
            others = connection.columns().keys() & {table.name for table in TABLES}
            if not others:
                return False
            if META.name in others:
                # Somebody has made them since.
                return self.check_version(connection)
            raise StoreError(
                f"{self.name} has other people's tables: {', '.join(sorted(others))}",
                hint="Choose another database, or a schema of its own: "
                "store.url=...?options=-csearch_path=SCHEMA",
            ) from None
        if versions.is_older(text, self, "another database"):
            self._bring_up(connection)
        connection.commit()
        return True

    def _check_schema(self, connection: PlainConnection) -> None:
        """Refuse a search path on which there is nowhere to make tables."""
        (row,) = connection.rows("SELECT current_schema() AS name, current_setting('search_path')")
        if row["name"] is not None:
            return
        wanted = row["current_setting"]
        raise ConfigError(
            f"{self.name}: there is no schema {wanted}, or you may not use it",
            key="store.url",
            hint=f"Make it once: CREATE SCHEMA {wanted.partition(',')[0]}",
        )

    def _bring_up(self, connection: PlainConnection) -> None:
        """An older store that a reader may not change is read where it lacks nothing."""
        try:
            connection.begin_alone()
            versions.bring_up(connection, _DEFINITIONS)
            connection.commit()
        except DBAPIError as error:
            if _state(error) not in NOT_ALLOWED:
                raise
            connection.rollback()
            if versions.lack_of(connection):
                raise StoreError(
                    f"{self.name} was made by an older Kernloom, and you may not change it",
                    hint="Ask its owner to look into it once: kernloom results store.url=...",
                ) from None

    def make_tables(self, connection: PlainConnection) -> None:
        connection.begin_alone()
        versions.make(connection, _DEFINITIONS)
        connection.commit()

    def explain(self, error: Exception) -> KernloomError | None:
        if not isinstance(error, DBAPIError):
            return None
        said = " ".join(str(error.orig).split())
        state = _state(error)
        if re.search(r'role ".*" (does not exist|is not permitted to log in)', said):
            return ConfigError(
                f"{self.name} does not let you in: {_reason(said)}",
                key="store.url",
                hint="Check the user: postgresql+psycopg://USER@HOST/DATABASE. Where the URL has "
                "none, it is your login name.",
            )
        if state in ("28P01", "28000") or any(words in said for words in NOT_LET_IN):
            return ConfigError(
                f"{self.name} does not let you in: {_reason(said)}",
                key="store.url",
                hint="Check user and password; the password may stand in ~/.pgpass or PGPASSWORD.",
            )
        if state == "3D000" or re.search(r'database ".*" does not exist', said):
            return ConfigError(
                f"{self.name}: there is no database '{self._url.database}'",
                key="store.url",
                hint=f"Make it once ({self._createdb()}), or name another.",
            )
        if state in NOT_ALLOWED:
            return StoreError(
                f"{self.name} cannot be changed: {_reason(said)}",
                hint="Ask its owner to let you create and write tables in it.",
            )
        if state.startswith("53"):
            return StoreError(
                f"{self.name} has no room left: {_reason(said)}",
                hint="Free what it lacks and run again: what was stored is safe, only the rest is "
                "done.",
            )
        if error.connection_invalidated or not state or state.startswith(("08", "57P")):
            return UnavailableError(
                f"{self.name} cannot be reached: {_reason(said)}",
                hint="Check that the server runs and host and port are right, and run again: what "
                "was stored is safe, only the rest is done.",
            )
        return StoreError(f"{self.name} cannot be used: {_reason(said)}")

    def _createdb(self) -> str:
        """The command that makes the database where the URL says."""
        url = self._url
        query = {name: text for name, text in url.query.items() if isinstance(text, str)}
        given = {
            "-h": url.host or query.get("host"),
            "-p": url.port or query.get("port"),
            "-U": url.username or query.get("user"),
        }
        options = [word for name, value in given.items() if value for word in (name, str(value))]
        return shlex.join(["createdb", *options, str(url.database)])

    def lost(self, connection: PlainConnection) -> int:
        return 0  # a server looks after its own log

    def trial_added(self, connection: PlainConnection) -> None:
        pass

    def damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self.name} is damaged or no store: {why}", hint="Choose another database."
        )


def _state(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def _reason(said: str) -> str:
    """The last part of what the server said: before it stands the way there."""
    return said.rpartition("FATAL: ")[2].strip()
