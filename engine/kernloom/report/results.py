"""The question `kernloom results` asks of the store."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernloom.errors import UsageError, nearest
from kernloom.measure.trial import Trial
from kernloom.store.keys import Filter, parse_key
from kernloom.store.store import Store

FEW_VALUES = ("status", "workload", "target", "toolchain", "arch", "case", "variant")
"""Keys with so few values that all can be named."""

_WORD = re.compile(r"([^=<>!]+)(!=|<=|>=|[=<>])(.*)", re.DOTALL)


def parse_filters(words: Sequence[str]) -> list[Filter]:
    """Words like `key=value` and `key<value`; quotes, as Hydra takes them, are no part of it."""
    filters: list[Filter] = []
    for word in words:
        found = _WORD.fullmatch(word)
        if not found:
            raise UsageError(
                f"'{word}' is neither key=value nor a comparison like 'key<value'",
                hint="For instance: status=ok target=host workload.sizes.M=64 'median_ns<1000'",
            )
        key, comparison, value = found.groups()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        asked = Filter(parse_key(key), value[1:-1] if quoted else value, comparison)
        for other in filters:
            if {asked.comparison, other.comparison} == {"="} and asked.key == other.key:
                if asked != other:
                    raise UsageError(f"{key} is given twice: {other.value} and {asked.value}")
                break
        else:
            filters.append(asked)
    return filters


def results(
    store: Store,
    filters: Sequence[Filter],
    *,
    sort: str = "",
    limit: int | None = None,
    history: bool = False,
) -> list[Trial]:
    """The trials asked for, newest first or by `sort` (`-key` for the largest first)."""
    return store.query(filters, limit, sort, history=history)


def why_nothing(store: Store, filters: Sequence[Filter]) -> list[str]:
    """Which filters no trial at all fits, and which values there are instead."""
    notes = []
    for asked in filters:
        if asked.comparison == "=" and asked.key.text in FEW_VALUES:
            values = store.distinct(asked.key.column)
            if values and asked.value not in values:
                there = nearest(asked.value, values).replace("Allowed:", "There are:")
                notes.append(f"no trial has {asked}. {there}")
    if notes:
        return notes
    if not store.distinct("workload"):
        return ["nothing has been stored here yet: `kernloom run` does"]
    if len(filters) > 1:
        return ["no trial fits all of these filters at once"]
    return []
