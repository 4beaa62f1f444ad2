"""What is asked of a store, as statements on an open connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Float,
    Integer,
    RowMapping,
    delete,
    func,
    insert,
    select,
    tuple_,
)

from kernloom.errors import UsageError
from kernloom.measure.trial import Samples, Trial
from kernloom.store.keys import COMPARISONS, Filter, Key, check_known, number, spellings
from kernloom.store.rows import SHARED, samples_of, trial_of
from kernloom.store.schema import baselines, documents, reuses, samples, trials
from kernloom.store.shared import Reader

CHUNK = 500
"""Trials asked for by name in one statement."""
SEEN = 1000
"""How many of the newest trials are looked through for the keys there are."""


def _newest() -> ColumnElement[bool]:
    other = trials.alias()
    newest = select(func.max(other.c.attempt)).where(other.c.id == trials.c.id)
    return trials.c.attempt == newest.scalar_subquery()


class Sections:
    """Reads trials, with the sections that they share fetched and decoded once."""

    def __init__(self, reader: Reader, connection: Connection) -> None:
        self._reader = reader
        self._connection = connection

    def trials(self, rows: Iterable[RowMapping]) -> list[Trial]:
        found = list(rows)
        self.need(found)
        return [trial_of(row, self._reader.document) for row in found]

    def need(self, rows: Iterable[Mapping[Any, Any]]) -> None:
        """Have ready what the documents of these rows refer to."""
        texts = (row[name] for row in rows for name in SHARED if name in row)
        self._reader.need(texts, self._fetch)

    def document(self, text: str) -> Any:
        return self._reader.document(text)

    def _fetch(self, hashes: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(hashes), CHUNK):
            some = documents.c.hash.in_(hashes[start : start + CHUNK])
            for row in self._connection.execute(select(documents).where(some)):
                found[row.hash] = row.text
        return found


def latest(connection: Connection, sections: Sections, ids: Sequence[str]) -> dict[str, Trial]:
    found: dict[str, Trial] = {}
    for start in range(0, len(ids), CHUNK):
        some = trials.c.id.in_(ids[start : start + CHUNK])
        rows = connection.execute(select(trials).where(some, _newest())).mappings()
        found |= {trial.id: trial for trial in sections.trials(rows)}
    return found


def samples_of_trial(connection: Connection, id: str) -> tuple[Samples, ...]:
    newest = select(func.max(trials.c.attempt)).where(trials.c.id == id)
    rows = connection.execute(
        select(samples)
        .where(samples.c.trial == id, samples.c.attempt == newest.scalar_subquery())
        .order_by(samples.c.process)
    )
    return tuple(samples_of(row) for row in rows.mappings())


def starting_with(connection: Connection, sections: Sections, prefix: str) -> list[Trial]:
    some = trials.c.id.startswith(prefix, autoescape=True)
    return sections.trials(connection.execute(select(trials).where(some, _newest())).mappings())


def count_reuses(connection: Connection, ids: Sequence[str]) -> None:
    """Note that each of these trials was taken instead of being carried out."""
    from sqlalchemy.dialects import postgresql, sqlite

    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    first = dialect.insert(reuses).values(times=1)
    again = first.on_conflict_do_update(
        index_elements=[reuses.c.trial], set_={"times": reuses.c.times + 1}
    )
    # In one order: writers that wait for each other's would wait for ever.
    connection.execute(again, [{"trial": id} for id in sorted(set(ids))])


def reuses_of(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(ids), CHUNK):
        some = reuses.c.trial.in_(ids[start : start + CHUNK])
        found |= {row.trial: row.times for row in connection.execute(select(reuses).where(some))}
    return found


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

    def __init__(self, row: Mapping[Any, Any], decode: Callable[[str], Any]) -> None:
        self._row = row
        self._decode = decode
        self._decoded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._decoded:
            self._decoded[name] = self._decode(self._row[name])
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)


def search(
    connection: Connection,
    sections: Sections,
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
        return sections.trials(rows.mappings())

    keys = [*(asked.key for asked in inside), *([by] if by else [])]
    documents = sorted({name for key in keys for name in key.documents})
    wanted = [trials.c[name] for name in ("id", "attempt", *documents)]
    candidates = []
    missed = set(keys)
    rows = connection.execute(select(*wanted).where(*conditions).order_by(*ordering))
    for row in _ready(rows.mappings().all(), sections):
        decoded = _Decoded(row, sections.document)
        values = {key: key.values(decoded) for key in keys}
        missed -= {key for key, found in values.items() if found}
        if all(asked.holds(values[asked.key]) for asked in inside):
            value = values[by][0] if by and values[by] else None
            candidates.append(((row["id"], row["attempt"]), value))
    if missed:
        seen = _seen(connection, sections)
        for key in missed:
            check_known(key, seen)
    if by:
        candidates = _sorted(candidates, down)
    return _fetch(connection, sections, [name for name, _ in candidates[:limit]])


def _ready(rows: Sequence[RowMapping], sections: Sections) -> Sequence[RowMapping]:
    sections.need(rows)
    return rows


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


def _fetch(
    connection: Connection, sections: Sections, names: Sequence[tuple[str, int]]
) -> list[Trial]:
    """The trials with these ids and attempts, in this order."""
    found = {}
    for start in range(0, len(names), CHUNK):
        some = tuple_(trials.c.id, trials.c.attempt).in_(names[start : start + CHUNK])
        rows = connection.execute(select(trials).where(some)).mappings().all()
        for row, trial in zip(rows, sections.trials(rows), strict=True):
            found[row["id"], row["attempt"]] = trial
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


def check_keys(connection: Connection, sections: Sections, keys: Iterable[Key]) -> None:
    """Refuse keys that no trial has."""
    inside = [key for key in keys if not key.column]
    seen = _seen(connection, sections) if inside else set()
    for key in inside:
        check_known(key, seen)


def _seen(connection: Connection, sections: Sections) -> set[str]:
    """The dotted paths that the newest trials have."""
    names = ("metrics", "placement", "conditions", "point", "params", "config", "machine")
    rows = connection.execute(
        select(*(trials.c[name] for name in names)).order_by(trials.c.created.desc()).limit(SEEN)
    )
    ready = _ready(rows.mappings().all(), sections)
    texts = {(name, row[name]) for row in ready for name in names}
    return {path for name, text in texts for path in spellings(name, sections.document(text))}
