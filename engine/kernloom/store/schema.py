"""The tables of a store as data, from which each database's SQL is generated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    key: bool = False
    default: str | None = None


@dataclass(frozen=True)
class Table:
    """A table; the key columns identify its rows."""

    name: str
    columns: tuple[Column, ...]
    indexes: tuple[tuple[str, str], ...] = ()
    """Name and column of each index."""
    by_key: bool = False
    """Rows are stored in key order, where the database supports it."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def _names(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "name") for name in names)


def _texts(*names: str, default: str | None = None) -> tuple[Column, ...]:
    return tuple(Column(name, "text", default=default) for name in names)


META = Table("meta", (Column("key", "name", key=True), *_texts("value")))

TRIALS = Table(
    "trials",
    (
        Column("id", "name", key=True),
        Column("attempt", "integer", key=True),
        *_names("created", "workload", "case_name", "target", "arch", "toolchain", "variant"),
        *_names("status"),
        Column("verified", "boolean"),
        *_names("stage"),
        *_texts("message"),
        *_names("provider"),
        Column("seconds", "float"),
        *_names("version"),
        *_texts("point", "params", "metrics"),
        *_texts("placement", "conditions", default="{}"),
        *_texts("warnings", "overrides", default="[]"),
        *_texts("facts", default="{}"),
        *_texts("artifacts", "config", "machine", "stderr"),
        # See digests.py.
        *_texts("digest", default=""),
    ),
    indexes=(("trials_by_time", "created"),),
)

SAMPLES = Table(
    "samples",
    (
        Column("trial", "name", key=True),
        Column("attempt", "integer", key=True),
        Column("process", "integer", key=True),
        Column("inner_count", "integer"),
        *_texts("wall_ns", "cpu_ns", "involuntary"),
        *_texts("transfer_ns", default="[]"),
    ),
    by_key=True,
)

DOCUMENTS = Table("documents", (Column("hash", "name", key=True), *_texts("text")))
"""Sections that the configs and machines of many trials share, by the hash of their text."""

BASELINES = Table(
    "baselines",
    (Column("name", "name", key=True), Column("trial", "name", key=True), *_names("created")),
)

REUSES = Table("reuses", (Column("trial", "name", key=True), Column("times", "integer")))
"""Number of cache hits of a trial."""

SOURCES = Table(
    "sources",
    (Column("trial", "name", key=True), *_names("used", "document")),
    by_key=True,
)
"""The kernel sources from which a trial was last planned, as the hash of a document, and when.
Trials from before version 4 have none."""

SCREENINGS = Table("looks", (Column("id", "name", key=True), *_names("created"), *_texts("text")))
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
        lines = [_definition(column, types[column.kind]) for column in table.columns]
        keys = ", ".join(column.name for column in table.columns if column.key)
        inside = ", ".join([*lines, f"PRIMARY KEY ({keys})"])
        how = f" {by_key}" if table.by_key and by_key else ""
        yield f"CREATE TABLE IF NOT EXISTS {table.name} ({inside}){how}"
        for index, column in table.indexes:
            yield f"CREATE INDEX IF NOT EXISTS {index} ON {table.name} ({column})"


def _definition(column: Column, kind: str) -> str:
    default = "" if column.default is None else f"DEFAULT '{column.default}' "
    return f"{column.name} {kind} {default}NOT NULL"


def insert_into(table: Table) -> str:
    """The INSERT statement for a row, with values named like their columns."""
    values = (f":{name}" for name in table.names)
    # Safe: all names come from the tables above.
    return f"INSERT INTO {table.name} ({', '.join(table.names)}) VALUES ({', '.join(values)})"  # noqa: S608
