"""Queries of `kernloom results`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from kernloom.base.errors import UsageError, nearest
from kernloom.measure.trial import Trial
from kernloom.store.keys import SOURCE, Filter, parse_key, value_text
from kernloom.store.lookups import CHUNK
from kernloom.store.store import Store

FEW_VALUES = ("status", "workload", "target", "toolchain", "arch", "case", "variant")
"""Columns with few distinct values, which can all be listed."""
FEW_NUMBERS = 20

_WORD = re.compile(r"([^=<>!]+)(!=|<=|>=|[=<>])(.*)", re.DOTALL)


def parse_filters(words: Sequence[str]) -> list[Filter]:
    """Parse words like `key=value` and `key<value`; quotes, as in Hydra, are removed."""
    filters: list[Filter] = []
    for word in words:
        found = _WORD.fullmatch(word)
        if not found:
            raise UsageError(
                f"'{word}' is neither key=value nor a comparison like 'key<value'",
                hint="For instance: status=ok target=host workload.sizes.M=64 'median_ns<1000'",
            )
        key, comparison, value = found.groups()
        parts = _parts(value) if comparison in ("=", "!=") else []
        either = tuple(map(_unquoted, parts)) if len(parts) > 1 else ()
        if key == SOURCE:
            raise UsageError(
                f"{word}: the version of a source can be shown and grouped by, but not filtered by",
                hint="For instance: --group source, or --columns id,source,median_ns",
            )
        asked = Filter(parse_key(key), _unquoted(value), comparison, either)
        for other in filters:
            if {asked.comparison, other.comparison} == {"="} and asked.key == other.key:
                if asked != other:
                    raise UsageError(
                        f"{key} is given twice: {other.value} and {asked.value}",
                        hint=f"For either of them: {key}={other.value},{asked.value}",
                    )
                break
        else:
            filters.append(asked)
    return filters


def _parts(value: str) -> list[str]:
    """Split at commas that are in neither quotes nor brackets."""
    parts, quote, depth = [""], "", 0
    for letter in value:
        if letter == "," and not quote and not depth:
            parts.append("")
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and not parts[-1]:
            quote = letter
        depth += 0 if quote else (letter in "[{") - (letter in "]}")
        parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def results(
    store: Store,
    filters: Sequence[Filter],
    *,
    sort: str = "",
    limit: int | None = None,
    history: bool = False,
) -> list[Trial]:
    """The matching trials, newest first or sorted by `sort` (`-key`: descending)."""
    return list(streamed(store, filters, sort=sort, limit=limit, history=history))


def streamed(
    store: Store,
    filters: Sequence[Filter],
    *,
    sort: str = "",
    limit: int | None = None,
    history: bool = False,
) -> Iterator[Trial]:
    """The same as an iterator, with few trials in memory at once."""
    waiting = store.stream(filters, limit, sort, history=history)
    while some := list(islice(waiting, CHUNK)):
        times = store.reuses(trial.id for trial in some)
        yield from (replace(trial, reuses=times.get(trial.id, 0)) for trial in some)


def explain_empty(store: Store, filters: Sequence[Filter]) -> list[str]:
    """The filters that no trial matches, with the existing values."""
    if not store.distinct("workload"):
        return ["nothing has been stored here yet: `kernloom run` does"]
    alone = [asked for asked in filters if not store.query([asked], 1, history=True)]
    if alone:
        return [
            f"no trial has {asked}. {_existing_values(store, asked)}".rstrip() for asked in alone
        ]
    if len(filters) > 1:
        return ["no trial fits all of these filters at once"]
    return []


def _existing_values(store: Store, asked: Filter) -> str:
    """The existing values of a key: all of them, or their range."""
    if asked.key.column and asked.key.text not in FEW_VALUES:
        return ""
    values = store.distinct(asked.key.text)
    numbers = sorted(v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool))
    if not numbers or len(numbers) < len(values):
        texts = [value_text(value) for value in values]
        return nearest(asked.value, texts).replace("Allowed:", "There are:") if texts else ""
    if len(numbers) > FEW_NUMBERS:
        return f"There are {len(numbers)} values, from {numbers[0]:g} to {numbers[-1]:g}."
    return f"There are: {', '.join(f'{number:g}' for number in numbers)}."
