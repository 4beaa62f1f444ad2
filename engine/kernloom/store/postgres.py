"""PostgreSQL in particular: one server for the stores of many writers."""

from __future__ import annotations

import sys

from sqlalchemy import Connection, Engine, create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, ProgrammingError

from kernloom.errors import (
    ConfigError,
    KernloomError,
    StoreError,
    UnavailableError,
    without_password,
)
from kernloom.store import versions
from kernloom.store.database import EXAMPLE, check_url
from kernloom.store.schema import VERSION, metadata

PACKAGE = "psycopg[binary]"
CONNECT_SECONDS = 10
DRIVER = "postgresql+psycopg"
_TABLES_LOCK = 0x6B65726E
"""The number of the advisory lock under which tables are made and changed."""


class Postgres:
    """A store on a server."""

    def __init__(self, url: str) -> None:
        try:
            self._url = make_url(check_url(url)).set(drivername=DRIVER)
        except (ArgumentError, ValueError):
            # What it says may have the password in it.
            raise ConfigError("is not a URL", key="store.url", hint=EXAMPLE) from None
        self.name = without_password(self._url.render_as_string(hide_password=True))

    def engine(self) -> Engine:
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

    def begin_alone(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TABLES_LOCK})")

    def check_version(self, engine: Engine) -> bool:
        with engine.connect() as connection:
            try:
                text = versions.version_of(connection)
            except ProgrammingError as error:
                if _state(error) != "42P01":
                    raise
                connection.rollback()
                others = set(inspect(connection).get_table_names()) & metadata.tables.keys()
                if not others:
                    return False
                raise StoreError(
                    f"{self.name} has other people's tables: {', '.join(sorted(others))}",
                    hint="Choose another database, or a schema of its own: "
                    "store.url=...?options=-csearch_path=SCHEMA",
                ) from None
            if text is None or not text.isdigit():
                raise self.damaged(f"its schema version is {text!r}")
            if int(text) > VERSION:
                raise StoreError(
                    f"{self.name} has schema version {text}, newer than {VERSION}, the newest "
                    "known here",
                    hint="Use the Kernloom that wrote it, or another database.",
                )
            if int(text) < VERSION:
                self.begin_alone(connection)
                versions.bring_up(connection)
                connection.commit()
        return True

    def make_tables(self, engine: Engine) -> None:
        with engine.begin() as connection:
            self.begin_alone(connection)
            versions.make(connection)

    def explain(self, error: DBAPIError) -> KernloomError:
        said = " ".join(str(error.orig).split())
        state = _state(error)
        if state in ("28P01", "28000") or "authentication failed" in said or "no password" in said:
            return ConfigError(
                f"{self.name} does not let you in: {_reason(said)}",
                key="store.url",
                hint="Check user and password; the password may stand in ~/.pgpass or PGPASSWORD.",
            )
        if state == "3D000" or ("database" in said and "does not exist" in said):
            return ConfigError(
                f"{self.name}: there is no database '{self._url.database}'",
                key="store.url",
                hint=f"Make it once (createdb {self._url.database}), or name another.",
            )
        if state == "42501" or state == "25006":
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

    def damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self.name} is damaged or no store: {why}", hint="Choose another database."
        )


def _state(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def _reason(said: str) -> str:
    """The last part of what the server said: before it stands the way there."""
    return said.rpartition("FATAL: ")[2].strip()
