"""The tables of a store. Importing this imports SQLAlchemy, so only an opened store does."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

VERSION = 2
"""Raised when the tables change; a store with a newer one is refused, not misread."""
ADDED = {
    2: {
        "trials": {"placement": "{}", "conditions": "{}", "warnings": "[]", "overrides": "[]"},
        "samples": {"transfer_ns": "[]"},
    }
}
"""Version -> table -> columns that came with it, all text, and what older rows have there."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
)

trials = Table(
    "trials",
    metadata,
    Column("id", String, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("created", String, nullable=False),
    Column("workload", String, nullable=False),
    Column("case_name", String, nullable=False),
    Column("target", String, nullable=False),
    Column("arch", String, nullable=False),
    Column("toolchain", String, nullable=False),
    Column("variant", String, nullable=False),
    Column("status", String, nullable=False),
    Column("verified", Boolean, nullable=False),
    Column("stage", String, nullable=False),
    Column("message", Text, nullable=False),
    Column("provider", String, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("version", String, nullable=False),
    Column("point", Text, nullable=False),
    Column("params", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("placement", Text, nullable=False, server_default="{}"),
    Column("conditions", Text, nullable=False, server_default="{}"),
    Column("warnings", Text, nullable=False, server_default="[]"),
    Column("overrides", Text, nullable=False, server_default="[]"),
    Column("artifacts", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("stderr", Text, nullable=False),
    Index("trials_by_time", "created"),
)

samples = Table(
    "samples",
    metadata,
    Column("trial", String, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("process", Integer, primary_key=True),
    Column("inner_count", Integer, nullable=False),
    Column("wall_ns", Text, nullable=False),
    Column("cpu_ns", Text, nullable=False),
    Column("involuntary", Text, nullable=False),
    Column("transfer_ns", Text, nullable=False, server_default="[]"),
    sqlite_with_rowid=False,
)

baselines = Table(
    "baselines",
    metadata,
    Column("name", String, primary_key=True),
    Column("trial", String, primary_key=True),
    Column("created", String, nullable=False),
)
