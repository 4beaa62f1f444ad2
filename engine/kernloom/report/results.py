"""The question `kernloom results` asks of the store."""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.errors import UsageError
from kernloom.measure.trial import Trial
from kernloom.store.store import Store


def parse_filters(words: Sequence[str]) -> dict[str, str]:
    """`key=value` words; quotes around a value, as Hydra takes them, are no part of it."""
    filters: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(
                f"'{word}' is not key=value",
                hint="For instance: status=ok target=host metrics.processes=1 workload.sizes.M=64",
            )
        if key in filters and filters[key] != value:
            raise UsageError(f"{key} is given twice: {filters[key]} and {value}")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        filters[key] = value[1:-1] if quoted else value
    return filters


def results(
    store: Store,
    words: Sequence[str],
    *,
    sort: str = "",
    limit: int | None = None,
    history: bool = False,
) -> list[Trial]:
    """The trials the words ask for, newest first or by `sort` (`-key` for the largest first)."""
    return store.query(parse_filters(words), limit, sort, history=history)
