"""The tables of a store, as data: each database is told of them in its own words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

VERSION = 4
"""Raised when the tables change; a store with a newer one is refused, not misread."""
ADDED = {
    "trials": {
        "placement": "{}",
        "conditions": "{}",
        "warnings": "[]",
        "overrides": "[]",
        "facts": "{}",
        "digest": "",
    },
    "samples": {"transfer_ns": "[]"},
}
"""Table -> columns that version 1 did not have, in the order in which they came, all text, and what
older rows have there.

Version 2 had more of them, and more tables, as time went by; what a store lacks is seen from the
store. `config` and `machine` of older rows are whole, and stay so.
"""

Kind = Literal["name", "text", "integer", "float", "boolean"]
"""What a column holds; trials are found and put in order by names, not by texts."""
_TYPES = {"text": "TEXT", "integer": "INTEGER", "float": "FLOAT", "boolean": "BOOLEAN"}


@dataclass(frozen=True)
class Column:
    """A column; none may be empty."""

    name: str
    kind: Kind
    key: bool = False
    default: str | None = None


@dataclass(frozen=True)
class Table:
    """A table; its rows are known by those of its columns that are keys."""

    name: str
    columns: tuple[Column, ...]
    indexes: tuple[tuple[str, str], ...] = ()
    """Name and column of each."""
    by_key: bool = False
    """Its rows are kept in the order of their keys, where a database can do that."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def _text(name: str, default: str | None = None) -> Column:
    return Column(name, "text", default=default)


META = Table("meta", (Column("key", "name", key=True), _text("value")))

TRIALS = Table(
    "trials",
    (
        Column("id", "name", key=True),
        Column("attempt", "integer", key=True),
        Column("created", "name"),
        Column("workload", "name"),
        Column("case_name", "name"),
        Column("target", "name"),
        Column("arch", "name"),
        Column("toolchain", "name"),
        Column("variant", "name"),
        Column("status", "name"),
        Column("verified", "boolean"),
        Column("stage", "name"),
        _text("message"),
        Column("provider", "name"),
        Column("seconds", "float"),
        Column("version", "name"),
        _text("point"),
        _text("params"),
        _text("metrics"),
        _text("placement", "{}"),
        _text("conditions", "{}"),
        _text("warnings", "[]"),
        _text("overrides", "[]"),
        _text("facts", "{}"),
        _text("artifacts"),
        _text("config"),
        _text("machine"),
        _text("stderr"),
        # See digests.py.
        _text("digest", ""),
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
        _text("wall_ns"),
        _text("cpu_ns"),
        _text("involuntary"),
        _text("transfer_ns", "[]"),
    ),
    by_key=True,
)

DOCUMENTS = Table("documents", (Column("hash", "name", key=True), _text("text")))
"""Sections that the configs and machines of many trials share, by the hash of their text."""

BASELINES = Table(
    "baselines",
    (
        Column("name", "name", key=True),
        Column("trial", "name", key=True),
        Column("created", "name"),
    ),
)

REUSES = Table("reuses", (Column("trial", "name", key=True), Column("times", "integer")))
"""How often a trial was taken from the store instead of being carried out again."""

SOURCES = Table(
    "sources",
    (Column("trial", "name", key=True), Column("used", "name"), Column("document", "name")),
    by_key=True,
)
"""From which kernel sources a trial was last planned, as the hash of a document, and when. Trials
from before version 4 have none."""

LOOKS = Table("looks", (Column("id", "name", key=True), Column("created", "name"), _text("text")))
"""What came of looks at the points of a screening; no results, only what saves looking again."""

TABLES = (META, TRIALS, SAMPLES, DOCUMENTS, BASELINES, REUSES, LOOKS, SOURCES)


def definitions(name: str, by_key: str) -> Iterator[str]:
    """The statements that make whatever table is not there yet.

    `name` is the type of names, `by_key` what a database calls tables kept in the order of keys.
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


def insert_into(table: Table, **instead: str) -> str:
    """The statement that adds a row of values by their columns' names, or of what is `instead`."""
    values = (instead.get(name, f":{name}") for name in table.names)
    # All of it is ours, from the tables above.
    return f"INSERT INTO {table.name} ({', '.join(table.names)}) VALUES ({', '.join(values)})"  # noqa: S608
