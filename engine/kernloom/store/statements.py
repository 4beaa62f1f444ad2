"""Queries of the trials of a store, by any of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernloom.base.errors import UsageError
from kernloom.base.files import canonical_json
from kernloom.base.gauges import USUAL_METRICS
from kernloom.measure.trial import Trial
from kernloom.store.keys import (
    Filter,
    Key,
    Meanings,
    check_known,
    not_a_number,
    number,
    spellings,
    value_text,
)
from kernloom.store.lookups import CHUNK, NEWEST, Lookups, Name, Row
from kernloom.store.schema import TRIALS

SEEN = 1000
"""Number of the newest trials searched first for existing keys."""
_KINDS = {column.name: column.kind for column in TRIALS.columns}
_NEWEST_FIRST = "created DESC, id, attempt DESC"


def starting_with(store: Lookups, prefix: str) -> list[Trial]:
    statement = f"SELECT * FROM trials WHERE id LIKE :start ESCAPE '/' AND {NEWEST}"  # noqa: S608
    return store.trials(store.connection.rows(statement, {"start": _start(prefix)}))


def _start(prefix: str) -> str:
    """A LIKE pattern for texts with this prefix."""
    for special in "/%_":
        prefix = prefix.replace(special, f"/{special}")
    return f"{prefix}%"


class _Decoded(Mapping[str, Any]):
    """The documents of a row, each decoded on first use."""

    def __init__(self, row: Row, decode: Callable[[str], Any]) -> None:
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
    store: Lookups,
    filters: Sequence[Filter],
    limit: int | None,
    order: Key | None,
    down: bool,
    history: bool,
) -> Iterator[Trial]:
    """The trials that match all filters, sorted; only some are in memory at a time.

    The database compares columns. Documents are read here, and only those that a key needs.
    """
    values: dict[str, Any] = {}
    conditions = [_condition(asked, values) for asked in filters if asked.key.column]
    if not history:
        conditions.append(NEWEST)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    first = f"{order.column} {'DESC' if down else 'ASC'}, " if order and order.column else ""
    rest = f"FROM trials{where} ORDER BY {first}{_NEWEST_FIRST}"
    inside = [asked for asked in filters if not asked.key.column]
    by = order if order and not order.column else None
    if not inside and not by:
        count = f" LIMIT {limit}" if limit is not None else ""
        for rows in store.connection.chunks(f"SELECT * {rest}{count}", values, CHUNK):
            yield from store.trials(rows)
        return

    keys = [*(asked.key for asked in inside), *([by] if by else [])]
    names = ("id", "attempt", *sorted({name for key in keys for name in key.documents}))
    candidates: list[tuple[Name, Any]] = []
    missed, meanings = set(keys), Meanings()
    wordy = [asked for asked in inside if asked.key.is_metric and asked.misses_numbers(())]
    for row, decoded in _decoded(store, names, rest, values):
        try:
            found = {key: meanings.values(key, decoded) for key in keys}
        except ValueError:
            # A damaged document, which is reported when the whole trial is read.
            candidates.append(((row["id"], row["attempt"]), None))
            continue
        missed -= {key for key, values_there in found.items() if values_there}
        wordy = [asked for asked in wordy if asked.misses_numbers(found[asked.key])]
        if all(asked.holds(found[asked.key]) for asked in inside):
            value = found[by][0] if by and found[by] else None
            candidates.append(((row["id"], row["attempt"]), value))
    check_keys(store, missed)
    for asked in wordy:
        if asked.key not in missed or asked.key.text in USUAL_METRICS:
            raise not_a_number(asked)
    if by:
        candidates = _sorted(candidates, down)
    yield from _fetch(store, [name for name, _ in candidates[:limit]])


def _decoded(
    store: Lookups, names: Iterable[str], rest: str, values: Mapping[str, Any]
) -> Iterator[tuple[Row, _Decoded]]:
    """Some columns of rows, with their documents."""
    for rows in store.connection.chunks(f"SELECT {', '.join(names)} {rest}", values, CHUNK):
        store.need(rows)
        yield from ((row, _Decoded(row, store.document)) for row in rows)


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
    absent = [candidate for candidate in candidates if candidate[1] is None]
    return sorted(present, key=rank, reverse=down) + absent


def _fetch(store: Lookups, names: Sequence[Name]) -> Iterator[Trial]:
    """The trials with these ids and attempts, in this order; damaged ones are left out."""
    for start in range(0, len(names), CHUNK):
        wanted = names[start : start + CHUNK]
        found = {(trial.id, trial.attempt): trial for trial in store.trials(store.named(wanted))}
        yield from (found[name] for name in wanted if name in found)


def _condition(asked: Filter, values: dict[str, Any]) -> str:
    """The SQL condition for a filter on a column, adding its values; ids match by prefix."""
    column = asked.key.column
    texts = asked.either or (asked.value,)
    kind = _KINDS[column]

    def placed(value: Any) -> str:
        values[name := f"value{len(values)}"] = value
        return f":{name}"

    if column == "id" and asked.equality:
        starts = " OR ".join(f"id LIKE {placed(_start(text))} ESCAPE '/'" for text in texts)
        return f"({starts})" if asked.comparison == "=" else f"NOT ({starts})"
    wanted: Sequence[Any] = asked.texts
    if kind == "boolean":
        if not {text.lower() for text in texts} <= {"true", "false"} or not asked.equality:
            raise UsageError(f"{asked} is not allowed", hint="Allowed: = and != with true, false.")
        wanted = [text.lower() == "true" for text in texts]
    elif kind in ("integer", "float"):
        wanted = [number(asked, text) for text in texts]
    if asked.equality:
        how = "IN" if asked.comparison == "=" else "NOT IN"
        return f"{column} {how} ({', '.join(map(placed, wanted))})"
    return f"{column} {asked.comparison} {placed(wanted[0])}"


def check_keys(store: Lookups, keys: Iterable[Key]) -> None:
    """Refuse keys that no trial has."""
    inside = [key for key in keys if not key.column]
    seen = _seen(store) if inside else {}
    for key in inside:
        try:
            check_known(key, seen)
        except UsageError:
            if not any(True for _ in _everywhere(store, key)):
                raise


def _everywhere(store: Lookups, key: Key) -> Iterator[Any]:
    """The values of a document key in all trials, with repetitions."""
    if key.documents:
        names = [f"DISTINCT {key.documents[0]}", *key.documents[1:]]
        for _, decoded in _decoded(store, names, "FROM trials", {}):
            yield from key.values(decoded)


def _seen(store: Lookups) -> dict[str, set[str]]:
    """The dotted paths in the newest trials, by document."""
    names = ("metrics", "placement", "conditions", "point", "params", "config", "machine")
    rest = f"FROM trials ORDER BY created DESC LIMIT {SEEN}"
    rows = [row for row, _ in _decoded(store, names, rest, {})]
    seen: dict[str, set[str]] = {name: set() for name in names}
    for name, text in {(name, row[name]) for row in rows for name in names}:
        seen[name] |= spellings(name, store.document(text))
    return seen
