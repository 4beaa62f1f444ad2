"""Adding a trial, which a sweep does thousands of times: the statements are made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Dialect, Table, bindparam, func, insert, literal_column, select

from kernloom.errors import StoreError
from kernloom.measure.trial import Samples
from kernloom.remember import ById
from kernloom.store.rows import sample_row
from kernloom.store.schema import documents, samples, trials

TRIES = 1000
"""How often another writer may be first with a number before something else must be wrong."""

_attempts = select(func.coalesce(func.max(trials.c.attempt), literal_column("0"))).where(
    trials.c.id == bindparam("p_this")
)
_BOOKS: ById[Mapping[str, _Statement]] = ById()


@dataclass(frozen=True)
class _Statement:
    """A statement in a database's own words: asking SQLAlchemy anew costs more than the insert."""

    text: str
    names: Sequence[str] | None
    """The parameters in their order, where a database takes them by position."""

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        values: Any = (
            [tuple(map(row.__getitem__, self.names)) for row in rows] if self.names else rows
        )
        only = values[0] if len(values) == 1 else list(values)
        return connection.exec_driver_sql(self.text, only).rowcount


def _inserts(dialect: Dialect) -> dict[str, _Statement]:
    from sqlalchemy.dialects import postgresql, sqlite

    insert_or_leave = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
    number = {"attempt": _attempts.scalar_subquery() + literal_column("1")}
    statements = {
        # Counted inside the insert. SQLite lets one process write at a time; in PostgreSQL another
        # one may be given the same number, and then whoever is second inserts nothing.
        "trial": insert_or_leave(trials)
        .values(**_parameters(trials, "attempt"), **number)
        .on_conflict_do_nothing(),
        "samples": insert(samples).values(
            **_parameters(samples, "attempt"), attempt=_attempts.scalar_subquery()
        ),
        "documents": insert_or_leave(documents)
        .values(**_parameters(documents))
        .on_conflict_do_nothing(),
    }
    made = {}
    for name, statement in statements.items():
        compiled = statement.inline().compile(dialect=dialect)
        # SQLAlchemy keeps the columns' own names to itself.
        this = "trial" if name == "samples" else "id"
        text = str(compiled).replace("%(p_this)", f"%({this})").replace("%(p_", "%(")
        order = compiled.positiontup and [
            this if parameter == "p_this" else parameter.removeprefix("p_")
            for parameter in compiled.positiontup
        ]
        made[name] = _Statement(text, order or None)
    return made


def _parameters(table: Table, *besides: str) -> dict[str, Any]:
    names = [column.name for column in table.c if column.name not in besides]
    return {name: bindparam(f"p_{name}") for name in names}


def add(
    connection: Connection,
    row: Mapping[str, Any],
    taken: Sequence[Samples],
    sections: Mapping[str, str],
) -> None:
    """Insert a trial as the next attempt of its id; `sections` are those not there yet."""
    inserts = _BOOKS.get(_inserts, connection.dialect)
    if sections:
        # In one order: writers that wait for each other's would wait for ever.
        rows = [{"hash": name, "text": sections[name]} for name in sorted(sections)]
        inserts["documents"].run(connection, rows)
    if not any(inserts["trial"].run(connection, [row]) == 1 for _ in range(TRIES)):
        raise StoreError(f"trial {row['id']} was refused a number {TRIES} times")
    if taken:
        rows = [sample_row(row["id"], process, s) for process, s in enumerate(taken)]
        inserts["samples"].run(connection, rows)
