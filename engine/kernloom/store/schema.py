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
"""Version -> table -> columns that came with it, all text, and what older rows have there.

With version 2 came the tables `documents` and `baselines`, too; `config` and `machine` of older
rows are whole, and stay so.
"""

metadata = MetaData()
# Whatever the language of a server, its order is that of SQLite.
NAME = String().with_variant(String(collation="C"), "postgresql")

meta = Table(
    "meta",
    metadata,
    Column("key", NAME, primary_key=True),
    Column("value", Text, nullable=False),
)

trials = Table(
    "trials",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("created", NAME, nullable=False),
    Column("workload", NAME, nullable=False),
    Column("case_name", NAME, nullable=False),
    Column("target", NAME, nullable=False),
    Column("arch", NAME, nullable=False),
    Column("toolchain", NAME, nullable=False),
    Column("variant", NAME, nullable=False),
    Column("status", NAME, nullable=False),
    Column("verified", Boolean, nullable=False),
    Column("stage", NAME, nullable=False),
    Column("message", Text, nullable=False),
    Column("provider", NAME, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("version", NAME, nullable=False),
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
    Column("trial", NAME, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("process", Integer, primary_key=True),
    Column("inner_count", Integer, nullable=False),
    Column("wall_ns", Text, nullable=False),
    Column("cpu_ns", Text, nullable=False),
    Column("involuntary", Text, nullable=False),
    Column("transfer_ns", Text, nullable=False, server_default="[]"),
    sqlite_with_rowid=False,
)

documents = Table(
    "documents",
    metadata,
    Column("hash", NAME, primary_key=True),
    Column("text", Text, nullable=False),
)
"""Sections that the configs and machines of many trials share, by the hash of their text."""

baselines = Table(
    "baselines",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("trial", NAME, primary_key=True),
    Column("created", NAME, nullable=False),
)

reuses = Table(
    "reuses",
    metadata,
    Column("trial", NAME, primary_key=True),
    Column("times", Integer, nullable=False),
)
"""How often a trial was taken from the store instead of being carried out again."""
