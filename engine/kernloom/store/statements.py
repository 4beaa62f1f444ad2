"""Questions about the trials of a store, by any of their keys: SQLAlchemy composes them."""

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
    func,
    or_,
    select,
    tuple_,
)

from kernloom.base.errors import UsageError
from kernloom.base.files import canonical_json
from kernloom.base.gauges import USUAL_METRICS
from kernloom.measure.trial import Trial
from kernloom.store.keys import (
    COMPARISONS,
    Filter,
    Key,
    Meanings,
    check_known,
    not_a_number,
    number,
    spellings,
    value_text,
)
from kernloom.store.lookups import CHUNK, Sections
from kernloom.store.tables import trials

SEEN = 1000
"""How many of the newest trials are looked through first for the keys there are."""


def _newest() -> ColumnElement[bool]:
    other = trials.alias()
    newest = select(func.max(other.c.attempt)).where(other.c.id == trials.c.id)
    # A row that the index does not know, or under another id, is looked at too: one is damaged.
    return trials.c.attempt == func.coalesce(newest.scalar_subquery(), trials.c.attempt)


def starting_with(connection: Connection, sections: Sections, prefix: str) -> list[Trial]:
    some = trials.c.id.startswith(prefix, autoescape=True)
    return sections.trials(connection.execute(select(trials).where(some, _newest())).mappings())


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
) -> Iterator[Trial]:
    """The trials of which all filters hold, in this order; some of them at a time are in memory.

    Columns are compared by the database. Documents are read here, only those that a key needs.
    """
    connection = connection.execution_options(yield_per=CHUNK)
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
        yield from sections.in_chunks(rows.mappings().partitions())
        return

    keys = [*(asked.key for asked in inside), *([by] if by else [])]
    documents = sorted({name for key in keys for name in key.documents})
    wanted = [trials.c[name] for name in ("id", "attempt", *documents)]
    candidates = []
    missed, meanings = set(keys), Meanings()
    wordy = [asked for asked in inside if asked.key.is_metric and asked.misses_numbers(())]
    rows = connection.execute(select(*wanted).where(*conditions).order_by(*ordering))
    for row in (row for some in rows.mappings().partitions() for row in _ready(some, sections)):
        decoded = _Decoded(row, sections.document)
        try:
            values = {key: meanings.values(key, decoded) for key in keys}
        except ValueError:
            # A damaged document: reading the whole trial tells.
            candidates.append(((row["id"], row["attempt"]), None))
            continue
        missed -= {key for key, found in values.items() if found}
        wordy = [asked for asked in wordy if asked.misses_numbers(values[asked.key])]
        if all(asked.holds(values[asked.key]) for asked in inside):
            value = values[by][0] if by and values[by] else None
            candidates.append(((row["id"], row["attempt"]), value))
    check_keys(connection, sections, missed)
    for asked in wordy:
        if asked.key not in missed or asked.key.text in USUAL_METRICS:
            raise not_a_number(asked)
    if by:
        candidates = _sorted(candidates, down)
    yield from _fetch(connection, sections, [name for name, _ in candidates[:limit]])


def _ready(rows: Sequence[RowMapping], sections: Sections) -> Sequence[RowMapping]:
    sections.need(rows)
    return rows


def distinct(connection: Connection, sections: Sections, key: Key) -> list[Any]:
    """The values that a key has: plain ones as they are, others as tables show them."""
    if key.column:
        column = trials.c[key.column]
        return list(connection.execute(select(column).distinct().order_by(column)).scalars())
    values: dict[str, Any] = {}
    for value in _everywhere(connection, sections, key):
        if isinstance(value, Mapping):
            value = value.get("name", canonical_json(value))
        text = value_text(value)
        values[text] = value if isinstance(value, (int, float, str)) else text
    return list(values.values())


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
) -> Iterator[Trial]:
    """The trials with these ids and attempts, in this order; damaged ones are left out."""
    for start in range(0, len(names), CHUNK):
        wanted = names[start : start + CHUNK]
        some = tuple_(trials.c.id, trials.c.attempt).in_(wanted)
        rows = connection.execute(select(trials).where(some)).mappings().all()
        found = {(trial.id, trial.attempt): trial for trial in sections.trials(rows)}
        yield from (found[name] for name in wanted if name in found)


def _condition(asked: Filter) -> ColumnElement[bool]:
    """What is asked of a column; the start of an id is enough."""
    column: ColumnElement[Any] = trials.c[asked.key.column]
    texts = asked.either or (asked.value,)
    if asked.key.column == "id" and asked.equality:
        starts = or_(*(column.startswith(text, autoescape=True) for text in texts))
        return starts if asked.comparison == "=" else ~starts
    values: list[Any] = list(asked.texts)
    if isinstance(column.type, Boolean):
        if not {text.lower() for text in texts} <= {"true", "false"} or not asked.equality:
            raise UsageError(f"{asked} is not allowed", hint="Allowed: = and != with true, false.")
        values = [text.lower() == "true" for text in texts]
    elif isinstance(column.type, (Integer, Float)):
        values = [number(asked, text) for text in texts]
    if asked.equality:
        return column.in_(values) if asked.comparison == "=" else column.not_in(values)
    condition: ColumnElement[bool] = COMPARISONS[asked.comparison](column, values[0])
    return condition


def check_keys(connection: Connection, sections: Sections, keys: Iterable[Key]) -> None:
    """Refuse keys that no trial has."""
    inside = [key for key in keys if not key.column]
    seen = _seen(connection, sections) if inside else {}
    for key in inside:
        try:
            check_known(key, seen)
        except UsageError:
            if not _is_anywhere(connection, sections, key):
                raise


def _is_anywhere(connection: Connection, sections: Sections, key: Key) -> bool:
    """Whether any trial at all has a key."""
    return any(True for _ in _everywhere(connection, sections, key))


def _everywhere(connection: Connection, sections: Sections, key: Key) -> Iterator[Any]:
    """The values that trials have under a key of their documents, most of them repeatedly."""
    wanted = select(*(trials.c[name] for name in key.documents)).distinct()
    for some in connection.execute(wanted).mappings().partitions(SEEN):
        for row in _ready(some, sections):
            yield from key.values(_Decoded(row, sections.document))


def _seen(connection: Connection, sections: Sections) -> dict[str, set[str]]:
    """The dotted paths that the newest trials have, by their documents."""
    names = ("metrics", "placement", "conditions", "point", "params", "config", "machine")
    rows = connection.execute(
        select(*(trials.c[name] for name in names)).order_by(trials.c.created.desc()).limit(SEEN)
    )
    ready = _ready(rows.mappings().all(), sections)
    seen: dict[str, set[str]] = {name: set() for name in names}
    for name, text in {(name, row[name]) for row in ready for name in names}:
        seen[name] |= spellings(name, sections.document(text))
    return seen
