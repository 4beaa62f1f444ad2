"""The PostgreSQL database: one server for many writers."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

from kernloom.base.errors import (
    ConfigError,
    KernloomError,
    StoreError,
    UnavailableError,
    without_password,
)
from kernloom.store import versions
from kernloom.store.database import EXAMPLE, Connection, Database, check_url
from kernloom.store.schema import TABLES, definitions

PACKAGE = "psycopg[binary]"
CONNECT_SECONDS = 10
NOT_ALLOWED = ("42501", "25006")
"""SQLSTATEs of missing privileges and of read-only transactions."""
NOT_LET_IN = ("authentication failed", "no password", "no pg_hba.conf entry")
_TABLES_LOCK = 0x6B65726E
"""Number of the advisory lock under which tables are created and changed."""
_URL = re.compile(
    # Not libpq's own parser, which wants the special characters of a password quoted.
    r"[\w+]+://(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?:\[(?P<ipv6>[^/?]+)\]|(?P<host>[^/:?]+))?(?::(?P<port>\d*))?"
    r"(?:/(?P<dbname>[^?]*))?(?:\?(?P<query>.*))?"
)


class PostgresConnection(Connection):
    """A connection to the server; psycopg begins a transaction with the first statement."""

    mark = "%s"
    begins_alone = f"SELECT pg_advisory_xact_lock({_TABLES_LOCK})"
    lists_columns = (
        "SELECT relname AS table_name, attname AS column_name "
        "FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
        "WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) "
        "AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped"
    )

    _cursors = 0

    def _cursor(self) -> Any:
        # A named cursor stays on the server, which sends its rows as they are fetched.
        self._cursors += 1
        return self.raw.cursor(name=f"chunks{self._cursors}")


class Postgres(Database):
    """A store on a server."""

    elsewhere = "another database"
    # Texts are sorted as in SQLite, whatever the server's locale.
    definitions = tuple(definitions(name='VARCHAR COLLATE "C"', by_key=""))

    def __init__(self, url: str) -> None:
        found = _URL.fullmatch(check_url(url))
        if not found:
            # The URL may contain the password.
            raise ConfigError("is not a URL", key="store.url", hint=EXAMPLE)
        super().__init__(without_password(url))
        parts = {name: unquote(text) for name, text in found.groupdict().items() if text}
        query = dict(parse_qsl(found["query"] or ""))
        parts.pop("query", None)
        if "ipv6" in parts:
            parts["host"] = parts.pop("ipv6")
        self._options: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, **parts, **query}
        if not self._options.get("dbname"):
            raise ConfigError(f"{self.name} names no database", key="store.url", hint=EXAMPLE)
        try:
            import psycopg
        except ImportError as error:
            raise UnavailableError(
                f"{self.name} needs the Python package {PACKAGE}: {error}",
                hint=f"Install it: {sys.executable} -m pip install '{PACKAGE}'",
            ) from None
        self._driver = psycopg

    def connect(self) -> Connection:
        return PostgresConnection(self._driver.connect(**self._options))

    def check_foreign(self, connection: Connection, tables: Sequence[str]) -> None:
        others = [table.name for table in TABLES if table.name in tables]
        if others:
            raise StoreError(
                f"{self.name} has other people's tables: {', '.join(sorted(others))}",
                hint="Choose another database, or a schema of its own: "
                "store.url=...?options=-csearch_path=SCHEMA",
            )
        (row,) = connection.rows("SELECT current_schema() AS name, current_setting('search_path')")
        if row["name"] is None:
            wanted = row["current_setting"]
            raise ConfigError(
                f"{self.name}: there is no schema {wanted}, or you may not use it",
                key="store.url",
                hint=f"Make it once: CREATE SCHEMA {wanted.partition(',')[0]}",
            )

    def make_tables(self, connection: Connection) -> None:
        versions.make(connection, self)

    def read_older(self, connection: Connection, error: Exception) -> None:
        """A store that this user may not change is read if it lacks nothing."""
        if _state(error) not in NOT_ALLOWED:
            raise error
        if not versions.is_complete(connection):
            raise StoreError(
                f"{self.name} was made by an older Kernloom, and you may not change it",
                hint="Ask its owner to look into it once: kernloom results store.url=...",
            )

    def is_gone(self, error: Exception) -> bool:
        """Whether the server was restarted, or the connection was lost."""
        return isinstance(error, self._driver.OperationalError) and _is_lost(_state(error))

    def explain(self, error: Exception) -> KernloomError | None:
        if not isinstance(error, self._driver.Error):
            return None
        said = " ".join(str(error).split())
        reason = said.rpartition("FATAL: ")[2].strip()
        state = _state(error)
        no_user = re.search(r'role ".*" (does not exist|is not permitted to log in)', said)
        if no_user or state in ("28P01", "28000") or any(words in said for words in NOT_LET_IN):
            hint = "Check user and password; the password may stand in ~/.pgpass or PGPASSWORD."
            if no_user:
                hint = (
                    "Check the user: postgresql+psycopg://USER@HOST/DATABASE. Where the URL has "
                    "none, it is your login name."
                )
            problem = f"{self.name} does not let you in: {reason}"
            return ConfigError(problem, key="store.url", hint=hint)
        if state == "3D000" or re.search(r'database ".*" does not exist', said):
            return ConfigError(
                f"{self.name}: there is no database '{self._options['dbname']}'",
                key="store.url",
                hint=f"Make it once ({self._createdb()}), or name another.",
            )
        rest = "run again: what was stored is safe, only the rest is done."
        if _is_lost(state):
            hint = f"Check that the server runs and host and port are right, and {rest}"
            return UnavailableError(f"{self.name} cannot be reached: {reason}", hint=hint)
        problem, hint = "cannot be used", ""
        if state in NOT_ALLOWED:
            problem, hint = (
                "cannot be changed",
                "Ask its owner to let you create and write tables in it.",
            )
        elif state.startswith("53"):
            problem, hint = "has no room left", f"Free what it lacks and {rest}"
        return StoreError(f"{self.name} {problem}: {reason}", hint=hint)

    def _createdb(self) -> str:
        """The command that creates the URL's database."""
        flags = {"-h": "host", "-p": "port", "-U": "user"}
        given = {flag: self._options.get(name) for flag, name in flags.items()}
        words = [word for flag, value in given.items() if value for word in (flag, str(value))]
        return shlex.join(["createdb", *words, str(self._options["dbname"])])

    def damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self.name} is damaged or no store: {why}", hint="Choose another database."
        )


def _state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or ""


def _is_lost(state: str) -> bool:
    """Whether this is the SQLSTATE of a lost connection or a server that shuts down."""
    return not state or state.startswith(("08", "57P"))
