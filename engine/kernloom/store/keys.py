"""The keys that filter and sort trials: a column's name, or a dotted path into its documents.

`metrics.gflops`, `params.tile.multiply.mr` and `config.seed` name their document. A path without
one is searched where it belongs: `gflops` in the metrics, `workload.sizes.M` in the swept keys and
then in the config. Parameters and config keys also have short names, as shown in tables: `mr`,
`tile.mr`, `M`, `extra_flags`. A short name has one meaning for all trials of an answer; an
ambiguous one is refused.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from kernloom.base.errors import UsageError, nearest
from kernloom.base.files import canonical_json
from kernloom.base.gauges import USUAL_METRICS
from kernloom.base.lookup import MISSING, lookup
from kernloom.config.schema import ROOT_KEYS, Experiment
from kernloom.store.rows import DOCUMENTS

_SAME = (
    "id attempt created workload target arch toolchain variant status verified stage message "
    "provider seconds version stderr"
)
COLUMNS = {name: name for name in _SAME.split()} | {"case": "case_name"}
"""Key -> column; `case` is a reserved word of SQL."""

SOURCE = "source"
"""Version of the kernels' sources that a trial ran. It is computed from all trials of a store, so
it can be shown and grouped by, but not filtered by."""

FIRST = ("status", "workload", "target", "toolchain")
"""The keys used most."""

SHORT = ("point", "params")
"""Documents whose paths have short names."""
FIXED = "select.fixed."
"""Prefix of swept keys that choose parameters."""

Path = tuple[str, ...]
NAMED: tuple[Path, ...] = (
    ("workload", "sizes"),
    ("workload", "scalars"),
    ("target", "options"),
    ("arch", "memory"),
    ("toolchain", "tools"),
)
"""Sections whose keys are not in the schema and also have short names."""

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Key:
    """Location of a value in a trial: a column, or a path in one of several documents."""

    text: str
    column: str = ""
    places: tuple[tuple[str, Path], ...] = ()
    """Document and path, tried in order."""
    config: tuple[Path, ...] = ()
    """For a short name: the config paths it may refer to, tried after the places."""

    @property
    def is_metric(self) -> bool:
        """Whether it can only be a metric."""
        return self.text in USUAL_METRICS or self.documents == ("metrics",)

    @property
    def documents(self) -> tuple[str, ...]:
        names = [*(name for name, _ in self.places), *(["config"] if self.config else [])]
        return tuple(dict.fromkeys(names))

    def found(self, documents: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """The full name that the key resolves to in a trial's documents, and the values there; for
        a short name, one per step."""
        for name, path in self.places:
            document, text = documents[name], ".".join(path)
            found = lookup(document, path)
            if name in SHORT and (found is MISSING or isinstance(found, Mapping)):
                # Before a group of the same name: the tunable `unroll` of the transform `unroll`.
                matching = [whole for whole in paths_in(document) if text in short_names(whole)]
                if matching:
                    values = [lookup(document, whole.split(".")) for whole in matching]
                    return _meaning(name, text, matching), values
            if found is not MISSING:
                return f"{name}.{text}", [found]
        return self._in_config(documents)

    def _in_config(self, documents: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """The full name and values of a short name in a trial's config."""
        if not self.config:
            return "", []
        found = {".".join(path): lookup(documents["config"], path) for path in self.config}
        there = {path: value for path, value in found.items() if value is not MISSING}
        if len(there) > 1:
            raise ambiguous(self.text, there)
        return next(iter(there), ""), list(there.values())


def _meaning(document: str, short: str, whole: Sequence[str]) -> str:
    """The meaning of a short name, given its matching paths: a key that chooses a parameter means
    that parameter."""
    if document == "point" and not all(path.startswith(FIXED) for path in whole):
        return whole[0]
    return f"params.{short.rpartition('.')[2]}"


def ambiguous(text: str, meanings: Iterable[str]) -> UsageError:
    return UsageError(
        f"'{text}' may mean {' or '.join(sorted(meanings))}", hint="Say which: the whole name."
    )


class Meanings:
    """Meanings of short names in an answer: the same in all its trials."""

    def __init__(self) -> None:
        self._seen: dict[Key, str] = {}

    def values(self, key: Key, documents: Mapping[str, Any]) -> list[Any]:
        """The values of a key in a trial; refuses a name with another meaning in another trial."""
        meaning, values = key.found(documents)
        if key.config and values and self._seen.setdefault(key, meaning) != meaning:
            raise ambiguous(key.text, {meaning, self._seen[key]})
        return values


@dataclass(frozen=True)
class Filter:
    """A condition on the value of a key: `status=ok`, `status=ok,wrong`, `median_ns<1000`."""

    key: Key
    value: str
    comparison: str = "="
    either: tuple[str, ...] = ()
    """The parts of a value with commas: any may match, or for `!=` none."""

    def __str__(self) -> str:
        return f"{self.key.text}{self.comparison}{self.value}"

    @property
    def equality(self) -> bool:
        return self.comparison in ("=", "!=")

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that match."""
        return (self.value, *self.either)

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether one of the stored values matches, or all of them as tables show them."""
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
        """Whether it compares numbers with a text, which can never match."""
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
    # The config has no metrics: a failed trial has no `samples`, rather than the planned number.
    return Key(text, places=places, config=() if text in USUAL_METRICS else config_paths(text))


def short_names(path: str) -> set[str]:
    """All names of a path: `mr`, `multiply.mr` and `tile.mr` for `tile.multiply.mr`."""
    parts = path.split(".")
    ends = {".".join(parts[start:]) for start in range(1, len(parts))}
    return ends | ({f"{parts[0]}.{parts[-1]}"} if len(parts) > 1 else set())


def matches(value: Any, wanted: str) -> bool:
    """Whether a stored value is written as `wanted`; a group matches by its name."""
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
    """All keys that refer to a value in a trial's document `name`."""
    paths = set(paths_in(document))
    bare = set(short_config_names(document)) if name == "config" else set()
    if name in SHORT:
        paths |= {short for path in paths for short in short_names(path)}
    return paths | bare | {f"{name}.{path}" for path in paths}


def unknown(key: Key, seen: Mapping[str, Iterable[str]]) -> UsageError:
    """The error for a key that no trial has; `seen` are the keys in the store, by document."""
    names = {name for paths in seen.values() for name in paths} | {*COLUMNS, *USUAL_METRICS}
    like_it = {name for name in names if ("." in name) == ("." in key.text)}
    chosen = [name for document in SHORT for name in sorted(seen.get(document, ()))]
    first = [name for name in (*FIRST, *chosen) if name in like_it]
    return UsageError(f"no trial has '{key.text}'", hint=nearest(key.text, like_it, first))


def config_paths(text: str) -> tuple[Path, ...]:
    """The config keys that a short name may refer to: those of the schema, so that the name means
    the same key for every trial, whether it was swept or not."""
    parts = tuple(text.split("."))
    found = [path for path in _schema_paths() if _ends(path, parts)]
    found += [path for section in NAMED if _ends(path := (*section, parts[-1]), parts)]
    return tuple(found)


def short_config_names(config: Any) -> Iterator[str]:
    """All short names of a config's keys."""
    inside = ((*section, name) for section in NAMED for name in _names(config, section))
    there = (path for path in _schema_paths() if lookup(config, path) is not MISSING)
    for path in (*inside, *there):
        for start in range(1, len(path)):
            yield ".".join(path[start:])


def _names(config: Any, section: Sequence[str]) -> list[str]:
    found = lookup(config, section)
    return [str(name) for name in found] if isinstance(found, Mapping) else []


def _ends(path: Path, parts: Path) -> bool:
    return len(parts) < len(path) and path[-len(parts) :] == parts


@cache
def _schema_paths() -> tuple[Path, ...]:
    """All keys of the schema, except those at its root."""
    return tuple(path for path in _paths(Experiment) if len(path) > 1)


def _paths(cls: type) -> Iterator[Path]:
    for name, wanted in get_type_hints(cls).items():
        options = [wanted]
        if get_origin(wanted) in (Union, types.UnionType):
            options = [option for option in get_args(wanted) if option is not type(None)]
        sections = [option for option in options if is_dataclass(option)]
        if sections and isinstance(sections[0], type):
            yield from ((name, *path) for path in _paths(sections[0]))
        elif not any(get_origin(option) is Mapping for option in options):
            yield (name,)
