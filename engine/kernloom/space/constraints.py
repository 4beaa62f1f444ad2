"""Constraints of a sweep: `where` expressions and `exclude` maps over swept keys.

A key can be named in full or by any unambiguous suffix: `workload.sizes.N`, `sizes.N` or `N`. A
name that is not swept refers to the point's config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernloom.base.errors import ConfigError, ExpressionError, nearest
from kernloom.base.expressions import Expression, evaluate, names_in, parse
from kernloom.space.arrays import exact_mask
from kernloom.space.axes import Row
from kernloom.space.clauses import Clause, clauses_of, parts_of
from kernloom.space.space import Space

LookUp = Callable[[Row, str], Any]
"""Looks up a key of a point's config; raises KeyError if there is none."""
_DOTTED = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_0-9]\w*)+""", re.ASCII)
_SIZES = "workload.sizes."
_MAX_ROWS_SEARCHED = 100_000
"""Maximum rows of one axis that are searched for an exclusion's values."""


@dataclass(frozen=True)
class Names:
    """The keys that names in a constraint can refer to."""

    swept: Collection[str]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Keys that the command line sets to one value."""
    outside: Collection[str] = ()
    """Keys swept by an enclosing sweep."""
    written: Collection[str] = ()
    """Swept keys with expressions among their values, so that their value depends on other keys."""

    def key(self, name: str, where: str) -> str | None:
        """The swept or fixed key that a name refers to, or None."""
        found = _called(name, (*self.swept, *self.fixed))
        if len(found) > 1:
            raise ConfigError(
                f"'{name}' may be any of {', '.join(found)}", key=where, hint="Write more of it."
            )
        if not found and _called(name, self.outside):
            raise ConfigError(
                f"'{name}' is swept outside of this nested sweep",
                key=where,
                hint="Move the constraint to the sweep that it is nested in.",
            )
        return found[0] if found else None


def _called(name: str, keys: Collection[str]) -> list[str]:
    if name in keys:
        return [name]
    return sorted({key for key in keys if key.endswith(f".{name}")})


@dataclass(frozen=True)
class Where:
    """An expression that must be true."""

    text: str
    place: str
    """Config key of the constraint."""
    expression: Expression
    keys: Mapping[str, str]
    """Name in the expression -> swept or fixed key."""
    others: Mapping[str, str]
    """Name in the expression -> name in the point's config."""
    names: Names
    look_up: LookUp

    @property
    def needs(self) -> frozenset[str] | None:
        keys = frozenset(self.keys.values())
        if self.others or not keys.isdisjoint(self.names.written):
            return None
        return keys - frozenset(self.names.fixed)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        swept, known = {}, {}
        for name, key in self.keys.items():
            if key not in self.names.fixed:
                swept[name] = key
            elif is_plain(key, self.names.fixed[key]):
                known[name] = self.names.fixed[key]
        plain = {name: key for name, key in swept.items() if key not in self.names.written}
        return clauses_of(self.expression, plain, known)

    def holds(self, row: Row) -> bool:
        variables = {name: self._value(row, key) for name, key in self.keys.items()}
        for name, full in self.others.items():
            variables[name] = self._config(row, full)
        try:
            result = self.expression(variables)
        except ExpressionError as error:
            raise ConfigError(f"'{self.text}': {error.message}", key=self.place) from None
        if not isinstance(result, bool):
            raise ConfigError(
                f"'{self.text}' gives {result!r}, which is neither true nor false",
                key=self.place,
                hint="Compare: N % 8 == 0, toolchain == 'gcc', mr * nr <= 64.",
            )
        return result

    def mask(self, values: Mapping[str, Any]) -> Any | None:
        if self.needs is None:
            return None
        variables = {}
        for name, key in self.keys.items():
            if key in values:
                variables[name] = values[key]
            elif key in self.names.fixed and is_plain(key, self.names.fixed[key]):
                variables[name] = self.names.fixed[key]
            else:
                return None
        return exact_mask(self.expression, variables)

    def split(self) -> tuple[Where, ...]:
        return tuple(self._part(part) for part in parts_of(self.expression))

    def _part(self, expression: Expression) -> Where:
        names = expression.names
        keys = {name: key for name, key in self.keys.items() if name in names}
        others = {name: other for name, other in self.others.items() if name in names}
        return replace(self, expression=expression, keys=keys, others=others)

    def _value(self, row: Row, key: str) -> Any:
        if key in row:
            value = row[key]
        elif key in self.names.fixed:
            value = self.names.fixed[key]
        else:
            return self._config(row, key)
        return self._config(row, key) if is_written(key, value) else value

    def _config(self, row: Row, name: str) -> Any:
        try:
            return self.look_up(row, name)
        except KeyError as error:
            known = {key.rpartition(".")[2] for key in self.names.swept} | set(self.names.swept)
            raise ConfigError(
                f"unknown name '{name}' in '{self.text}'",
                key=self.place,
                hint=nearest(name, known.union(*error.args[1:])),
            ) from None


def is_written(key: str, value: Any) -> bool:
    """Whether a value is an expression or reference that is evaluated."""
    return isinstance(value, str) and (key.startswith(_SIZES) or "${" in value)


def is_plain(key: str, value: Any) -> bool:
    """Whether a value is a literal number or text."""
    return isinstance(value, (int, float, str)) and not is_written(key, value)


def read_where(text: str, place: str, names: Names, look_up: LookUp) -> Where:
    """Parse a constraint and resolve its names."""
    full: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        found = match.group()
        if found[0] in "'\"":
            return found
        name = "_" + found.replace("_", "__").replace(".", "_")
        full[name] = found
        return name

    try:
        expression = parse(_DOTTED.sub(stand_in, text))
    except ExpressionError as error:
        raise ConfigError(f"'{text}': {error.message}", key=place, hint=error.hint) from None
    if not expression.names:
        raise ConfigError(f"'{text}' names no key", key=place)
    keys, others = {}, {}
    for name in sorted(expression.names):
        key = names.key(full.get(name, name), place)
        if key is None:
            others[name] = full.get(name, name)
        else:
            keys[name] = key
    return Where(text, place, expression, keys, others, names, look_up)


@dataclass(frozen=True)
class Exclude:
    """A combination of values that no point may have."""

    text: str
    values: Mapping[str, Any]
    fixed: Mapping[str, Any]

    @property
    def needs(self) -> frozenset[str] | None:
        return frozenset(self.values) - frozenset(self.fixed)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return ()

    def holds(self, row: Row) -> bool:
        return not self.agrees(row, self.values)

    def agrees(self, row: Row, keys: Iterable[str]) -> bool:
        """Whether a row has the excluded values for these keys."""
        return all(self._has(row, key, self.values[key]) for key in keys)

    def mask(self, values: Mapping[str, Any]) -> Any | None:
        import numpy

        matches: Any = True
        for key, wanted in self.values.items():
            if key in values:
                value = numpy.asarray(values[key])
                here = [_same(one, value) for one in _options(wanted)]
                matches = matches & numpy.logical_or.reduce(here)
            elif key in self.fixed:
                matches = matches & self._has({}, key, wanted)
            else:
                return None
        return numpy.logical_not(matches)

    def split(self) -> tuple[Exclude, ...]:
        return (self,)

    def matches_any(self, space: Space) -> bool:
        """Whether some combination has all the values; an axis too large to search counts as a
        match."""
        axes = [(axis, axis.keys & self.values.keys()) for axis in space.axes]
        fixed = self.values.keys() - space.keys
        return self.agrees({}, fixed) and all(
            axis.size > _MAX_ROWS_SEARCHED
            or any(self.agrees(axis.at(rank), keys) for rank in range(axis.size))
            for axis, keys in axes
            if keys
        )

    def _has(self, row: Row, key: str, wanted: Any) -> bool:
        if key not in row and key not in self.fixed:
            return False
        value = row.get(key, self.fixed.get(key))
        return any(
            value == one and isinstance(value, bool) == isinstance(one, bool)
            for one in _options(wanted)
        )


def _options(wanted: Any) -> list[Any]:
    """The alternatives of an excluded value: itself, or the elements of a list."""
    return [wanted, *wanted] if isinstance(wanted, list) else [wanted]


def _same(one: Any, values: Any) -> Any:
    """Where an array has this value; true is not 1."""
    import numpy

    kind = values.dtype.kind
    if kind == "O":
        alike = [v == one and isinstance(v, bool) == isinstance(one, bool) for v in values.flat]
        return numpy.array(alike, dtype=bool).reshape(values.shape)
    kinds = {"b": (bool,), "i": (int, float), "f": (int, float), "U": (str,)}[kind]
    return values == one if type(one) in kinds else numpy.zeros(values.shape, dtype=bool)


def read_exclude(values: Mapping[str, Any], place: str, names: Names) -> Exclude:
    """Parse an exclusion and resolve its keys."""
    if not values:
        raise ConfigError("names no key", key=place)
    found = {}
    for name, value in values.items():
        key = names.key(name, place)
        if key is None:
            swept = sorted(names.swept)
            short = [key.rpartition(".")[2] for key in swept]
            raise ConfigError(
                f"'{name}' is not swept", key=place, hint=nearest(name, swept + short)
            )
        found[key] = value
    text = " ".join(f"{key}={value}" for key, value in values.items())
    return Exclude(text, found, names.fixed)


def config_value(data: Mapping[str, Any], name: str) -> Any:
    """The value at a key of a point's config; `workload.sizes` may be omitted."""
    key = _whole(data, name)
    sizes = data["workload"].get("sizes") or {}
    if key.startswith(_SIZES) and key.removeprefix(_SIZES) in sizes:
        return _size(sizes, key.removeprefix(_SIZES), 0)
    node: Any = data
    for part in key.split("."):
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            raise KeyError(name, set(node) if isinstance(node, Mapping) else set())
    # A config group is represented by its name.
    return node["name"] if isinstance(node, Mapping) and "name" in node else node


def raw_value(data: Mapping[str, Any], name: str) -> Any:
    """The unresolved value at a key, or None."""
    node: Any = data
    for part in _whole(data, name).split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _whole(data: Mapping[str, Any], name: str) -> str:
    root = name.split(".")[0]
    if root in data:
        return name
    workload = data["workload"]
    inside = [f"{part}." for part in ("sizes", "scalars") if root in (workload.get(part) or {})]
    return f"workload.{name}" if root in workload else f"workload.{(inside or ['sizes.'])[0]}{name}"


def _size(sizes: Mapping[str, Any], name: str, depth: int) -> Any:
    """The value of a size, which may be an expression over other sizes."""
    value = sizes[name]
    if not isinstance(value, str) or depth > len(sizes):
        return value
    others = {other: _size(sizes, other, depth + 1) for other in names_in([value]) & {*sizes}}
    return evaluate(value, others, key=f"{_SIZES}{name}")
