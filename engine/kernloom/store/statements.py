"""Queries of the trials of a store, by any of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernloom.base.errors import UsageError
from kernloom.base.files import canonical_json
from kernloom.base.gauges import USUAL_METRICS
from kernloom.store.keys import (
    SOURCE,
    Filter,
    Key,
    Meanings,
    not_a_number,
    number,
    spellings,
    unknown,
    value_text,
)
from kernloom.store.lookups import CHUNK, NEWEST, Lookups, Name, name_of
from kernloom.store.rows import Row
from kernloom.store.schema import TRIALS

SEEN = 1000
"""Number of the newest trials searched for keys to suggest."""
_KINDS = {column.name: column.kind for column in TRIALS.columns}


def _starting_with(prefix: str) -> str:
    """A LIKE pattern, with the escape character `/`, for texts with this prefix."""
    for special in "/%_":
        prefix = prefix.replace(special, f"/{special}")
    return f"{prefix}%"


class _Documents(dict[str, Any]):
    """The documents of a row, each decoded on first use."""

    def __init__(self, row: Row, decode: Callable[[str], Any]) -> None:
        super().__init__()
        self._row, self._decode = row, decode

    def __missing__(self, name: str) -> Any:
        self[name] = self._decode(self._row[name])
        return self[name]


def search(
    store: Lookups,
    filters: Sequence[Filter],
    limit: int | None,
    order: Key | None,
    down: bool,
    history: bool,
) -> list[Name]:
    """The names of the trials that match all filters, sorted.

    The database compares columns. Documents are read here, and only those that a key needs.
    """
    values: list[Any] = []
    conditions = [_condition(asked, values) for asked in filters if asked.key.column]
    conditions += [] if history else [NEWEST]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    first = f"{order.column} {'DESC' if down else 'ASC'}, " if order and order.column else ""
    rest = f"FROM trials{where} ORDER BY {first}created DESC, id, attempt DESC"
    inside = [asked for asked in filters if not asked.key.column]
    by = order if order and not order.column else None
    keys = [*(asked.key for asked in inside), *([by] if by else [])]
    if limit is not None and not keys:
        rest += f" LIMIT {limit}"

    names = ("id", "attempt", *sorted({name for key in keys for name in key.documents}))
    candidates: list[tuple[Name, Any]] = []
    missed, meanings = set(keys), Meanings()
    wordy = [asked for asked in inside if asked.key.is_metric and asked.misses_numbers(())]
    for row, documents in _decoded(store, names, rest, values):
        try:
            found = {key: meanings.values(key, documents) for key in keys}
        except ValueError:
            # A damaged document, which is reported when the whole trial is read.
            candidates.append((name_of(row), None))
            continue
        missed -= {key for key, values_there in found.items() if values_there}
        wordy = [asked for asked in wordy if asked.misses_numbers(found[asked.key])]
        if all(asked.holds(found[asked.key]) for asked in inside):
            candidates.append((name_of(row), found[by][0] if by and found[by] else None))
    check_keys(store, missed)
    for asked in wordy:
        if asked.key not in missed or asked.key.text in USUAL_METRICS:
            raise not_a_number(asked)
    if by:
        candidates = _sorted(candidates, down)
    return [name for name, _ in candidates[:limit]]


def _decoded(
    store: Lookups, names: Iterable[str], rest: str, values: Sequence[Any] = ()
) -> Iterator[tuple[Row, _Documents]]:
    """Some columns of rows, with their documents."""
    for rows in store.connection.chunks(f"SELECT {', '.join(names)} {rest}", values, CHUNK):
        store.need(rows)
        yield from ((row, _Documents(row, store.document)) for row in rows)


def distinct(store: Lookups, key: Key) -> list[Any]:
    """The distinct values of a key: plain ones unchanged, others as tables show them."""
    if key.column:
        # Column names come from us, never from the user.
        statement = f"SELECT DISTINCT {key.column} AS value FROM trials ORDER BY 1"  # noqa: S608
        return [row["value"] for row in store.connection.rows(statement)]
    values: dict[str, Any] = {}
    for value in _everywhere(store, key):
        if isinstance(value, Mapping):
            value = value.get("name", canonical_json(value))
        text = value_text(value)
        values[text] = value if isinstance(value, (int, float, str)) else text
    return list(values.values())


def _sorted(candidates: list[tuple[Name, Any]], down: bool) -> list[tuple[Name, Any]]:
    """Sorted by value, numbers before text; missing values come last in both directions."""

    def rank(candidate: tuple[Name, Any]) -> tuple[bool, Any]:
        value = candidate[1]
        return (False, value) if isinstance(value, (int, float)) else (True, str(value))

    present = [candidate for candidate in candidates if candidate[1] is not None]
    present.sort(key=rank, reverse=down)
    return present + [candidate for candidate in candidates if candidate[1] is None]


def _condition(asked: Filter, values: list[Any]) -> str:
    """The SQL condition for a filter on a column, adding its values; ids match by prefix."""
    column = asked.key.column
    texts = asked.either or (asked.value,)
    if column == "id" and asked.equality:
        values += map(_starting_with, texts)
        starts = " OR ".join(["id LIKE ? ESCAPE '/'"] * len(texts))
        return f"({starts})" if asked.comparison == "=" else f"NOT ({starts})"
    wanted: Sequence[Any] = asked.texts
    if _KINDS[column] == "boolean":
        if not {text.lower() for text in texts} <= {"true", "false"} or not asked.equality:
            raise UsageError(f"{asked} is not allowed", hint="Allowed: = and != with true, false.")
        wanted = [text.lower() == "true" for text in texts]
    elif _KINDS[column] in ("integer", "float"):
        wanted = [number(asked, text) for text in texts]
    if asked.equality:
        values += wanted
        how = "IN" if asked.comparison == "=" else "NOT IN"
        return f"{column} {how} ({', '.join('?' * len(wanted))})"
    values.append(wanted[0])
    return f"{column} {asked.comparison} ?"


def check_keys(store: Lookups, keys: Iterable[Key]) -> None:
    """Refuse keys that no trial has."""
    for key in keys:
        if key.column or key.text in (*USUAL_METRICS, SOURCE):
            continue
        if not any(True for _ in _everywhere(store, key)):
            seen = _seen(store)
            # An empty store cannot tell which paths there may be.
            if any(seen.values()) or "." not in key.text:
                raise unknown(key, seen)


def _everywhere(store: Lookups, key: Key) -> Iterator[Any]:
    """The values of a document key in all trials, with repetitions."""
    if key.documents:
        names = [f"DISTINCT {key.documents[0]}", *key.documents[1:]]
        for _, documents in _decoded(store, names, "FROM trials"):
            yield from key.found(documents)[1]


def _seen(store: Lookups) -> dict[str, set[str]]:
    """The dotted paths in the newest trials, by document."""
    names = ("metrics", "placement", "conditions", "point", "params", "config", "machine")
    rest = f"FROM trials ORDER BY created DESC LIMIT {SEEN}"
    seen: dict[str, set[str]] = {name: set() for name in names}
    texts = set()
    for row, documents in _decoded(store, names, rest):
        for name in names:
            if (name, row[name]) not in texts:
                texts.add((name, row[name]))
                seen[name] |= spellings(name, documents[name])
    return seen
