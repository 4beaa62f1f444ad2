"""The tables as SQLAlchemy wants them; importing this imports it, which takes its time."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Integer, MetaData, String, Table, Text

from kernloom.store import schema

_TYPES = {"name": String, "text": Text, "integer": Integer, "float": Float, "boolean": Boolean}
_metadata = MetaData()


def _known(table: schema.Table) -> Table:
    columns = (Column(c.name, _TYPES[c.kind](), primary_key=c.key) for c in table.columns)
    return Table(table.name, _metadata, *columns)


trials = _known(schema.TRIALS)
