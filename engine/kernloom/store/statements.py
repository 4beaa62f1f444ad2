"""What is asked of a store, as statements on an open connection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Float,
    Integer,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
)

from kernloom.errors import UsageError
from kernloom.measure.trial import Samples, Trial
from kernloom.store.keys import COMPARISONS, Filter, Key, check_known, number, spellings
from kernloom.store.rows import row_of, sample_row, samples_of, trial_of
from kernloom.store.schema import baselines, samples, trials

CHUNK = 500
"""Trials asked for by name in one statement."""
SEEN = 1000
"""How many of the newest trials are looked through for the keys there are."""

_attempts = select(func.coalesce(func.max(trials.c.attempt), 0)).where(
    trials.c.id == bindparam("this_trial")
)
# Counted inside the insert, which holds the write lock: no number is given twice.
_insert_trial = insert(trials).values(attempt=_attempts.scalar_subquery() + 1)
_insert_samples = insert(samples).values(attempt=_attempts.scalar_subquery())


def add(connection: Connection, trial: Trial) -> None:
    this = {"this_trial": trial.id}
    connection.execute(_insert_trial, row_of(trial) | this)
    if trial.samples:
        rows = [sample_row(trial.id, process, s) for process, s in enumerate(trial.samples)]
        connection.execute(_insert_samples, [row | this for row in rows])


def _newest() -> ColumnElement[bool]:
    other = trials.alias()
    newest = select(func.max(other.c.attempt)).where(other.c.id == trials.c.id)
    return trials.c.attempt == newest.scalar_subquery()


def latest(connection: Connection, ids: Sequence[str]) -> dict[str, Trial]:
    found = {}
    for start in range(0, len(ids), CHUNK):
        some = trials.c.id.in_(ids[start : start + CHUNK])
        for row in connection.execute(select(trials).where(some, _newest())).mappings():
            found[row["id"]] = trial_of(row)
    return found


def samples_of_trial(connection: Connection, id: str) -> tuple[Samples, ...]:
    newest = select(func.max(trials.c.attempt)).where(trials.c.id == id)
    rows = connection.execute(
        select(samples)
        .where(samples.c.trial == id, samples.c.attempt == newest.scalar_subquery())
        .order_by(samples.c.process)
    )
    return tuple(samples_of(row) for row in rows.mappings())


def starting_with(connection: Connection, prefix: str) -> list[Trial]:
    some = trials.c.id.startswith(prefix, autoescape=True)
    rows = connection.execute(select(trials).where(some, _newest()))
    return [trial_of(row) for row in rows.mappings()]


def save_baseline(connection: Connection, name: str, ids: Sequence[str], created: str) -> None:
    """Put these trials, and no others, under a name."""
    remove_baseline(connection, name)
    rows = [{"name": name, "trial": id, "created": created} for id in ids]
    connection.execute(insert(baselines), rows)


def remove_baseline(connection: Connection, name: str) -> int:
    """How many trials were under the name."""
    return connection.execute(delete(baselines).where(baselines.c.name == name)).rowcount


def baseline(connection: Connection, name: str) -> list[str]:
    """The ids of the trials under a name."""
    rows = connection.execute(select(baselines.c.trial).where(baselines.c.name == name))
    return [row.trial for row in rows]


def named_baselines(connection: Connection) -> list[tuple[str, str, int]]:
    """Name, time and number of trials of each baseline."""
    rows = connection.execute(
        select(baselines.c.name, func.max(baselines.c.created), func.count())
        .group_by(baselines.c.name)
        .order_by(baselines.c.name)
    )
    return [(name, created, count) for name, created, count in rows]


class _Decoded(Mapping[str, Any]):
    """The documents of a row, each decoded when it is first looked into."""

    def __init__(self, row: Mapping[Any, Any]) -> None:
        self._row = row
        self._decoded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._decoded:
            self._decoded[name] = json.loads(self._row[name])
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)


def search(
    connection: Connection,
    filters: Sequence[Filter],
    limit: int | None,
    order: Key | None,
    down: bool,
    history: bool,
) -> list[Trial]:
    """The trials of which all filters hold, in this order.

    Columns are compared by the database. Documents are read here, only those that a key needs.
    """
    conditions = [_condition(asked) for asked in filters if asked.key.column]
    if not history:
        conditions.append(_newest())
    newest_first = (trials.c.created.desc(), trials.c.id, trials.c.attempt.desc())
    ordering: tuple[ColumnElement[Any], ...] = newest_first
    if order and order.column:
        column = trials.c[order.column]
        ordering = (column.desc() if down else column.asc(), *newest_first)
    inside = [asked for asked in filters if not asked.key.column]
    by = order if order and not order.column else None
    if not inside and not by:
        rows = connection.execute(
            select(trials).where(*conditions).order_by(*ordering).limit(limit)
        )
        return [trial_of(row) for row in rows.mappings()]

    keys = [*(asked.key for asked in inside), *([by] if by else [])]
    documents = sorted({name for key in keys for name in key.documents})
    wanted = [trials.c[name] for name in ("id", "attempt", *documents)]
    candidates = []
    missed = set(keys)
    for row in connection.execute(
        select(*wanted).where(*conditions).order_by(*ordering)
    ).mappings():
        decoded = _Decoded(row)
        values = {key: key.values(decoded) for key in keys}
        missed -= {key for key, found in values.items() if found}
        if all(asked.holds(values[asked.key]) for asked in inside):
            value = values[by][0] if by and values[by] else None
            candidates.append(((row["id"], row["attempt"]), value))
    if missed:
        seen = _seen(connection)
        for key in missed:
            check_known(key, seen)
    if by:
        candidates = _sorted(candidates, down)
    return _fetch(connection, [name for name, _ in candidates[:limit]])


def distinct(connection: Connection, column: str) -> list[str]:
    """The values that a column has."""
    found = connection.execute(select(trials.c[column]).distinct().order_by(trials.c[column]))
    return [str(value) for value in found.scalars()]


def _sorted(candidates: list[tuple[Any, Any]], down: bool) -> list[tuple[Any, Any]]:
    """By value, numbers before text; whatever has no value comes last, either way."""

    def rank(candidate: tuple[Any, Any]) -> tuple[bool, Any]:
        value = candidate[1]
        return (False, value) if isinstance(value, (int, float)) else (True, str(value))

    present = [candidate for candidate in candidates if candidate[1] is not None]
    absent = [candidate for candidate in candidates if candidate[1] is None]
    return sorted(present, key=rank, reverse=down) + absent


def _fetch(connection: Connection, names: Sequence[tuple[str, int]]) -> list[Trial]:
    """The trials with these ids and attempts, in this order."""
    found = {}
    for start in range(0, len(names), CHUNK):
        some = tuple_(trials.c.id, trials.c.attempt).in_(names[start : start + CHUNK])
        for row in connection.execute(select(trials).where(some)).mappings():
            found[row["id"], row["attempt"]] = trial_of(row)
    return [found[name] for name in names]


def _condition(asked: Filter) -> ColumnElement[bool]:
    """What is asked of a column; the start of an id is enough."""
    column: ColumnElement[Any] = trials.c[asked.key.column]
    equality = asked.comparison in ("=", "!=")
    if asked.key.column == "id" and equality:
        starts = column.startswith(asked.value, autoescape=True)
        return starts if asked.comparison == "=" else ~starts
    compare = COMPARISONS[asked.comparison]
    value: Any = asked.value
    if isinstance(column.type, Boolean):
        if value.lower() not in ("true", "false") or not equality:
            raise UsageError(f"{asked} is not allowed", hint="Allowed: = and != with true, false.")
        value = value.lower() == "true"
    elif isinstance(column.type, (Integer, Float)):
        value = number(asked)
    condition: ColumnElement[bool] = compare(column, value)
    return condition


def _seen(connection: Connection) -> set[str]:
    """The dotted paths that the newest trials have."""
    names = ("metrics", "placement", "conditions", "point", "params", "config", "machine")
    rows = connection.execute(
        select(*(trials.c[name] for name in names)).order_by(trials.c.created.desc()).limit(SEEN)
    )
    texts = {(name, row[name]) for row in rows.mappings() for name in names}
    return {path for name, text in texts for path in spellings(name, json.loads(text))}
