"""The tables of a store as data, from which each database's SQL is generated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

VERSION = 4
"""Increased when the tables change; a store with a newer version is refused, not misread."""
Kind = Literal["name", "text", "integer", "float", "boolean"]
"""Type of a column; trials are found and sorted by names, not by texts."""
_TYPES = {"text": "TEXT", "integer": "INTEGER", "float": "FLOAT", "boolean": "BOOLEAN"}


@dataclass(frozen=True)
class Column:
    """A column, always NOT NULL."""

    name: str
    kind: Kind
    default: str | None = None


@dataclass(frozen=True)
class Table:
    """A table; the first columns identify its rows."""

    name: str
    columns: tuple[Column, ...]
    keys: int = 1
    """Number of columns in the primary key."""
    by_key: bool = False
    """Rows are stored in key order, where the database supports it."""

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @cached_property
    def insertion(self) -> str:
        """The INSERT statement for a row, with its values in the order of the columns."""
        marks = ", ".join("?" * len(self.names))
        # Safe: all names come from the tables below.
        return f"INSERT INTO {self.name} ({', '.join(self.names)}) VALUES ({marks})"  # noqa: S608


def _columns(kind: Kind, *names: str, default: str | None = None) -> tuple[Column, ...]:
    return tuple(Column(name, kind, default) for name in names)


META = Table("meta", (*_columns("name", "key"), *_columns("text", "value")))

TRIALS = Table(
    "trials",
    (
        *_columns("name", "id"),
        *_columns("integer", "attempt"),
        *_columns("name", "created", "workload", "case_name", "target", "arch", "toolchain"),
        *_columns("name", "variant", "status"),
        *_columns("boolean", "verified"),
        *_columns("name", "stage"),
        *_columns("text", "message"),
        *_columns("name", "provider"),
        *_columns("float", "seconds"),
        *_columns("name", "version"),
        *_columns("text", "point", "params", "metrics"),
        *_columns("text", "placement", "conditions", default="{}"),
        *_columns("text", "warnings", "overrides", default="[]"),
        *_columns("text", "facts", default="{}"),
        *_columns("text", "artifacts", "config", "machine", "stderr"),
        # See rows.py.
        *_columns("text", "digest", default=""),
    ),
    keys=2,
)

SAMPLES = Table(
    "samples",
    (
        *_columns("name", "trial"),
        *_columns("integer", "attempt", "process", "inner_count"),
        *_columns("text", "wall_ns", "cpu_ns", "involuntary"),
        *_columns("text", "transfer_ns", default="[]"),
    ),
    keys=3,
    by_key=True,
)

DOCUMENTS = Table("documents", (*_columns("name", "hash"), *_columns("text", "text")))
"""Sections that the configs and machines of many trials share, by the hash of their text."""

BASELINES = Table("baselines", _columns("name", "name", "trial", "created"), keys=2)

REUSES = Table("reuses", (*_columns("name", "trial"), *_columns("integer", "times")))
"""Number of cache hits of a trial."""

SOURCES = Table("sources", _columns("name", "trial", "used", "document"), by_key=True)
"""The kernel sources from which a trial was last planned, as the hash of a document, and when.
Trials from before version 4 have none."""

SCREENINGS = Table("looks", (*_columns("name", "id", "created"), *_columns("text", "text")))
"""Results of screening points; they are no trials, and only save screening again."""

TABLES = (META, TRIALS, SAMPLES, DOCUMENTS, BASELINES, REUSES, SCREENINGS, SOURCES)
ADDED = {
    table.name: {c.name: c.default for c in table.columns if c.default is not None}
    for table in TABLES
}
"""Table -> columns that version 1 did not have, all text, with the value for older rows.

Version 2 gained columns and tables over time, so a store is inspected for what it lacks. `config`
and `machine` of older rows are stored whole, and stay so.
"""


def definitions(name: str, by_key: str) -> Iterator[str]:
    """The statements that create missing tables.

    `name` is the SQL type of names, `by_key` the clause for tables stored in key order.
    """
    types = {**_TYPES, "name": name}
    for table in TABLES:
        lines = []
        for column in table.columns:
            default = "" if column.default is None else f"DEFAULT '{column.default}' "
            lines.append(f"{column.name} {types[column.kind]} {default}NOT NULL")
        lines.append(f"PRIMARY KEY ({', '.join(table.names[: table.keys])})")
        after = f" {by_key}" if table.by_key else ""
        yield f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(lines)}){after}"
    yield f"CREATE INDEX IF NOT EXISTS trials_by_time ON {TRIALS.name} (created)"
