"""The keys that filter and sort trials: a column's name, or a dotted path into its documents.

`metrics.gflops`, `params.tile.multiply.mr` and `config.seed` name the document they look into. A
path without one is looked for where it belongs: `gflops` among the metrics, `workload.sizes.M`
among the swept keys and then in the config. Parameters and config keys go by their short names,
too, as tables show them: `mr`, `tile.mr`, `M`, `extra_flags`. A short name has one meaning for all
trials of an answer; one that has several is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.base.errors import UsageError, nearest
from kernloom.base.files import canonical_json
from kernloom.base.gauges import USUAL_METRICS
from kernloom.base.lookup import MISSING, lookup
from kernloom.config.schema import ROOT_KEYS
from kernloom.store.config_names import config_paths, short_config_names
from kernloom.store.rows import DOCUMENTS

_SAME = (
    "id attempt created workload target arch toolchain variant status verified stage message "
    "provider seconds version stderr"
)
COLUMNS = {name: name for name in _SAME.split()} | {"case": "case_name"}
"""Key -> column; `case` is a word of SQL."""

SOURCE = "source"
"""Which version of its kernels' sources a trial ran; worked out from all trials of a store, so that
it can be shown and grouped by, but not filtered by."""

FIRST = ("status", "workload", "target", "toolchain")
"""Keys that are asked for most."""

SHORT = ("point", "params")
"""Documents whose paths go by short names."""
FIXED = "select.fixed."
"""Swept keys that begin so choose parameters."""

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Key:
    """Where a value of a trial stands: in a column, or at a path in one of some documents."""

    text: str
    column: str = ""
    places: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Document and path, tried in order."""
    config: tuple[tuple[str, ...], ...] = ()
    """Of a short name: the paths in the config that it may mean, tried after the places."""

    @property
    def is_metric(self) -> bool:
        """Whether it can be nothing but a metric."""
        return self.text in USUAL_METRICS or self.documents == ("metrics",)

    @property
    def documents(self) -> tuple[str, ...]:
        names = [*(name for name, _ in self.places), *(["config"] if self.config else [])]
        return tuple(dict.fromkeys(names))

    def values(self, documents: Mapping[str, Any]) -> list[Any]:
        """The values in a trial's decoded documents: of a short name, one for each step."""
        return self.found(documents)[1]

    def found(self, documents: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """What the key means in a trial, as a whole name, and the values there."""
        for name, path in self.places:
            found = lookup(documents[name], path)
            if found is not MISSING and not isinstance(found, Mapping):
                return f"{name}.{'.'.join(path)}", [found]
            if name in SHORT:
                # Before a group of the same name: the tunable `unroll` of the transform `unroll`.
                short = ".".join(path)
                matching = [
                    whole for whole in paths_in(documents[name]) if short in short_names(whole)
                ]
                if matching:
                    meaning = _meaning(name, short, matching)
                    return meaning, [lookup(documents[name], w.split(".")) for w in matching]
            if found is not MISSING:
                return f"{name}.{'.'.join(path)}", [found]
        return self._in_config(documents)

    def _in_config(self, documents: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """What a short name means in the config of a trial."""
        if not self.config:
            return "", []
        found = {".".join(path): lookup(documents["config"], path) for path in self.config}
        there = {path: value for path, value in found.items() if value is not MISSING}
        if len(there) > 1:
            raise ambiguous(self.text, there)
        return next(iter(there), ""), list(there.values())


def _meaning(document: str, short: str, whole: Sequence[str]) -> str:
    """What a short name means, given the paths that have it: a key that chooses a parameter means
    that parameter."""
    if document == "point" and not all(path.startswith(FIXED) for path in whole):
        return whole[0]
    return f"params.{short.rpartition('.')[2]}"


def ambiguous(text: str, meanings: Iterable[str]) -> UsageError:
    return UsageError(
        f"'{text}' may mean {' or '.join(sorted(meanings))}", hint="Say which: the whole name."
    )


class Meanings:
    """What short names mean in the trials of an answer: one thing in all of them."""

    def __init__(self) -> None:
        self._seen: dict[Key, str] = {}

    def values(self, key: Key, documents: Mapping[str, Any]) -> list[Any]:
        """The values of a key in a trial; a name that means something else in another trial is
        refused."""
        meaning, values = key.found(documents)
        if key.config and values and self._seen.setdefault(key, meaning) != meaning:
            raise ambiguous(key.text, {meaning, self._seen[key]})
        return values


@dataclass(frozen=True)
class Filter:
    """What is asked of the value of a key: `status=ok`, `status=ok,wrong`, `median_ns<1000`."""

    key: Key
    value: str
    comparison: str = "="
    either: tuple[str, ...] = ()
    """The parts of a value with commas: any of them will do, or for `!=` none."""

    def __str__(self) -> str:
        return f"{self.key.text}{self.comparison}{self.value}"

    @property
    def equality(self) -> bool:
        return self.comparison in ("=", "!=")

    @property
    def texts(self) -> tuple[str, ...]:
        """All that an equal value may be written as."""
        return (self.value, *self.either)

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether one of the stored values is as asked, or all of them as they are shown."""
        if len(values) > 1 and self.equality and value_text(values) in self.texts:
            return self.comparison == "="
        return any(self._holds(value) for value in values)

    def _holds(self, value: Any) -> bool:
        if self.equality:
            found = any(matches(value, text) for text in self.texts)
            return found == (self.comparison == "=")
        if isinstance(value, (int, float)):
            return bool(COMPARISONS[self.comparison](value, number(self)))
        return isinstance(value, str) and bool(COMPARISONS[self.comparison](value, self.value))

    def misses_numbers(self, values: Sequence[Any]) -> bool:
        """Whether it asks for a text where there are numbers only, which it cannot be."""
        if self.comparison != "=" or all(map(_is_number, self.either or (self.value,))):
            return False
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        return numbers and value_text(values) not in self.texts


def number(asked: Filter, text: str | None = None) -> float:
    try:
        return float(asked.value if text is None else text)
    except ValueError:
        raise not_a_number(asked) from None


def not_a_number(asked: Filter) -> UsageError:
    return UsageError(f"{asked}: expected a number")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_key(text: str) -> Key:
    head, *rest = text.split(".")
    path = (head, *rest)
    if not rest and head in COLUMNS:
        return Key(text, column=COLUMNS[head])
    if text == SOURCE:
        return Key(text)
    if rest and head in DOCUMENTS:
        return Key(text, places=((head, tuple(rest)),))
    if head in ROOT_KEYS:
        return Key(text, places=(("point", path), ("config", path)))
    places = tuple((name, path) for name in ("metrics", *SHORT, "machine"))
    # The config has no metrics: `samples` of a trial that failed are none, not those planned.
    return Key(text, places=places, config=() if text in USUAL_METRICS else config_paths(text))


def short_names(path: str) -> set[str]:
    """What a path may be called: `mr`, `multiply.mr` and `tile.mr` for `tile.multiply.mr`."""
    parts = path.split(".")
    ends = {".".join(parts[start:]) for start in range(1, len(parts))}
    return ends | ({f"{parts[0]}.{parts[-1]}"} if len(parts) > 1 else set())


def matches(value: Any, wanted: str) -> bool:
    """Whether a stored value is the one written as `wanted`; of a group, its name is enough."""
    if isinstance(value, bool) or value is None:
        return wanted.lower() == {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (int, float)):
        return _is_number(wanted) and float(wanted) == value
    if isinstance(value, str):
        return wanted == value
    if isinstance(value, Mapping) and wanted == value.get("name"):
        return True
    if isinstance(value, list):
        plain = f"[{','.join(map(str, value))}]"
        if wanted.replace(" ", "") == plain or (value and wanted == value_text(value)):
            return True
    return wanted == canonical_json(value)


def value_text(value: Any) -> str:
    """A value as tables show it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        between = " " if any(isinstance(inner, str) for inner in value) else "x"
        return between.join(value_text(inner) for inner in value)
    if isinstance(value, Mapping):
        return " ".join(f"{name}={value_text(inner)}" for name, inner in value.items())
    return str(value)


def paths_in(value: Any) -> Iterable[str]:
    """Every dotted path to a plain value."""
    if not isinstance(value, Mapping):
        yield ""
        return
    for name, inner in value.items():
        for path in paths_in(inner):
            yield f"{name}.{path}" if path else str(name)


def spellings(name: str, document: Any) -> set[str]:
    """Everything that a value in a trial's document `name` may be called."""
    paths = set(paths_in(document))
    bare = set(short_config_names(document)) if name == "config" else set()
    if name in SHORT:
        paths |= {short for path in paths for short in short_names(path)}
    return paths | bare | {f"{name}.{path}" for path in paths}


def check_known(key: Key, seen: Mapping[str, Iterable[str]]) -> None:
    """Refuse a key that neither a column nor anything in the store has.

    `seen` are the paths in it, by their documents.
    """
    if key.column or key.text in (*USUAL_METRICS, SOURCE):
        return
    names = {name for paths in seen.values() for name in paths}
    if names and key.text in names:
        return
    if not names and "." in key.text:
        return
    names |= {*COLUMNS, *USUAL_METRICS}
    like_it = {name for name in names if ("." in name) == ("." in key.text)}
    chosen = [name for document in SHORT for name in sorted(seen.get(document, ()))]
    first = [name for name in (*FIRST, *chosen) if name in like_it]
    raise UsageError(f"no trial has '{key.text}'", hint=nearest(key.text, like_it, first))
