"""The `sweep` section of a config as a space of points: axes, zips, nested sweeps, constraints,
samples and named points, together with the axes of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernloom.base.digest import as_section
from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.override_parser import MAX_VALUES, parse_overrides
from kernloom.config.overrides import Override, spelled
from kernloom.config.schema import NOT_IDENTITY
from kernloom.config.settings import SampleSettings, SweepSettings
from kernloom.config.values import apply
from kernloom.space.axes import Axis, Points, Row, Rows, Union
from kernloom.space.constraints import Exclude, LookUp, Names, is_written, read_exclude, read_where
from kernloom.space.space import Constraint, Selection, Space

POINT = "sweep.point"
"""Key of the name of a named point."""
NOT_SWEPT = NOT_IDENTITY
"""Root keys of the run, not of a point."""
_STEPS, _POWERS = ("from", "to", "step"), "powers_of_two"
_MAX_FLOATS = 1_000_000
_ADDED = ("sweep.where", "sweep.exclude")
"""Lists that the command line extends."""
_MANY = ("axes", "zip", "nested", "points")


def read_sweep(section: Any) -> SweepSettings:
    """The section with its shape checked; a single constraint, zip or exclusion needs no list."""
    return convert(SweepSettings, _listed(section), "sweep")


def _listed(section: Any) -> Any:
    if not isinstance(section, Mapping):
        return section
    result = dict(section)
    for name, one in (("where", str), ("zip", Mapping), ("exclude", Mapping), ("nested", Mapping)):
        if isinstance(result.get(name), one):
            result[name] = [result[name]]
    if isinstance(result.get("nested"), list):
        result["nested"] = [_listed(inner) for inner in result["nested"]]
    return {name: value for name, value in result.items() if value is not None}


def changed(section: dict[str, Any], said: Sequence[tuple[Override, Any]]) -> Any:
    """The section with the command line's overrides applied. Constraints and exclusions are added
    to those of the file; maps are merged, as everywhere."""
    data: dict[str, Any] = {"sweep": _listed(section)}
    # In any order of words, a deletion applies to the file's entries.
    first = [pair for pair in said if pair[0].key in _ADDED and pair[0].kind == "delete"]
    for override, value in [*first, *(pair for pair in said if pair not in first)]:
        sweep: dict[str, Any] = data["sweep"]
        name = override.key.removeprefix("sweep.")
        here = _at(sweep, name.split("."))
        if override.kind == "delete":
            if name.startswith("axes."):
                axes = _without_axis(sweep, name.removeprefix("axes."))
                data = {"sweep": {**sweep, "axes": axes}}
            else:
                data = apply(as_section(data), override, value)
        elif here and (value == {} or (value == [] and override.key in _ADDED)):
            raise ConfigError(
                f"{spelled(value)} adds nothing to what is there",
                key=override.key,
                hint=f"~{override.key} takes that away.",
            )
        elif override.key in _ADDED and value is not None:
            more = value if isinstance(value, list) else [value]
            data = {"sweep": {**sweep, name: [*(here or ()), *more]}}
        else:
            data = apply(as_section(data), override, value)
    return data["sweep"]


def _at(node: Any, names: Sequence[str]) -> Any:
    for name in names:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _without_axis(section: Mapping[str, Any], key: str) -> dict[str, Any]:
    axes = _flat(section.get("axes") or {}, steps=True)
    if key not in axes:
        raise ConfigError(f"there is no axis '{key}'", key="sweep.axes", hint=nearest(key, axes))
    return {name: spec for name, spec in axes.items() if name != key}


def describes_points(sweep: SweepSettings) -> bool:
    """Whether the sweep sets anything."""
    return replace(sweep, about="") != SweepSettings()


def has_points(sweep: SweepSettings) -> bool:
    """Whether the sweep adds points, and does not only filter those of the command line."""
    return any(getattr(sweep, name) for name in _MANY)


@dataclass
class Reader:
    """Converts a sweep to a space; collects overrides and names for the composer."""

    groups: Groups
    check: Callable[[Override], None]
    """Refuses unknown options of groups."""
    fixed: Mapping[str, Any]
    """Keys that the command line sets to one value."""
    look_up: LookUp
    say: Callable[[str], None]
    overrides: dict[str, Override] = field(default_factory=dict)
    """Swept key -> override that applies its values."""
    named: dict[str, str] = field(default_factory=dict)
    """Name of a point -> config key of its description."""

    def points(self, sweep: SweepSettings, typed: Sequence[Axis]) -> Points:
        """All points of the sweep, combined with the command line's axes."""
        return self._points(sweep, "sweep", tuple(typed), frozenset())

    def _points(
        self, sweep: SweepSettings, place: str, typed: tuple[Axis, ...], outside: frozenset[str]
    ) -> Points:
        axes = [self._axis({key: spec}, f"{place}.axes") for key, spec in self._axes(sweep, place)]
        zips = [
            self._axis(_flat(one, steps=True), f"{place}.zip[{number}]")
            for number, one in enumerate(sweep.zip)
        ]
        parts: list[Points] = [*typed, *axes, *zips]
        here = _distinct(parts, place)
        for number, one in enumerate(sweep.nested):
            if not has_points(one):
                raise ConfigError("has no points", key=f"{place}.nested[{number}]")
        if sweep.nested:
            inner = [
                self._points(one, f"{place}.nested[{number}]", (), outside | here)
                for number, one in enumerate(sweep.nested)
            ]
            parts.append(Union(tuple(inner)))
            here = _distinct(parts, place)
        names = Names(here, self.fixed, outside, _written(parts))
        tests = self._tests(sweep, place, names)
        space = Space(tuple(parts) or (Rows([{}]),), tuple(test for _, test in tests))
        named = self._named(sweep, place, typed)
        if named and not (sweep.axes or sweep.zip or sweep.nested):
            if tests or sweep.sample:
                raise ConfigError(
                    "where, exclude and sample choose among axes, and there are none",
                    key=place,
                    hint="Named points are always taken.",
                )
            return named
        wanted = self._wanted(space, [text for text, _ in tests], sweep, place)
        return Union((wanted, named)) if named else wanted

    def _axes(self, sweep: SweepSettings, place: str) -> Iterable[tuple[str, Any]]:
        """The axes, without those that the command line sets to one value."""
        for key, spec in _flat(sweep.axes, steps=True).items():
            if self._override(key, f"{place}.axes").key not in self.fixed:
                yield key, spec

    def _axis(self, specs: Mapping[str, Any], place: str) -> Axis:
        columns: dict[str, Sequence[Any]] = {}
        for text, spec in specs.items():
            override = self._override(text, place)
            if override.key in self.fixed:
                raise ConfigError(
                    f"'{override.key}' moves together with other keys here, "
                    "and the command line gives it one value",
                    key=place,
                    hint=f"{_deletion_override(place)} takes these keys out of the sweep.",
                )
            values = self._values(text, spec, f"{place}.{text}")
            self.check(replace(override, values=values))
            columns[override.key] = values
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            shown = ", ".join(f"{key} has {len(values)}" for key, values in columns.items())
            raise ConfigError(f"the keys do not have equally many values: {shown}", key=place)
        if not columns:
            raise ConfigError("names no key", key=place)
        return Axis(tuple(columns), tuple(columns.values()))

    def _override(self, text: str, place: str) -> Override:
        """The override of a swept key, with the same meaning as on the command line."""
        try:
            [override] = parse_overrides([f"{text}=0"], self.groups, multirun=True)
        except UsageError:
            raise ConfigError(f"'{text}' is not a key", key=place) from None
        if override.kind == "delete":
            raise ConfigError(f"'{text}': a key that is deleted has no values", key=place)
        if override.root in NOT_SWEPT:
            raise ConfigError(
                f"'{override.key}' belongs to the whole run, so it cannot be swept", key=place
            )
        override = replace(override, swept=True)
        self.overrides[override.key] = override
        return override

    def _values(self, text: str, spec: Any, place: str) -> Sequence[Any]:
        """The values of an axis, in the written order."""
        if isinstance(spec, str):
            try:
                [override] = parse_overrides([f"{text}={spec}"], self.groups, multirun=True)
            except UsageError as error:
                raise ConfigError(error.message, key=place, hint=error.hint) from None
            return override.values
        if isinstance(spec, Mapping):
            return _steps(spec, place)
        values = list(spec) if isinstance(spec, (list, tuple)) else [spec]
        if not values:
            raise ConfigError("has no values", key=place)
        return values

    def _tests(
        self, sweep: SweepSettings, place: str, names: Names
    ) -> list[tuple[str, Constraint]]:
        tests: list[tuple[str, Constraint]] = []
        for number, text in enumerate(sweep.where):
            if not text.strip():
                raise ConfigError("has no value", key=f"{place}.where[{number}]")
            where = read_where(text, f"{place}.where[{number}]", names, self.look_up)
            tests.append((f"where '{text}'", where))
        for number, values in enumerate(sweep.exclude):
            exclude = read_exclude(_flat(values), f"{place}.exclude[{number}]", names)
            tests.append((f"exclude {exclude.text}", exclude))
        return tests

    def _wanted(
        self, space: Space, texts: Sequence[str], sweep: SweepSettings, place: str
    ) -> Selection:
        """The points of a space that satisfy the constraints, sampled."""
        tests = space.constraints
        if sweep.sample and sweep.sample.count < space.size:
            sample = sweep.sample
            found = space.sample(sample.count, sample.seed, sample.method)
            unmatched = [not _matches_any(test, space) for test in tests]
        else:
            found = space.valid(limit=True)
            unmatched = [not removed for removed in found.removed]
        for text, test, useless in zip(texts, tests, unmatched, strict=True):
            if useless and isinstance(test, Exclude):
                self.say(f"{place}: {text} matches no point")
        if not found.indices:
            raise _empty_sweep_error(found, texts, place)
        if sweep.sample:
            self._tell(found, sweep.sample, place)
        return found

    def _tell(self, found: Selection, sample: SampleSettings, place: str) -> None:
        """Report a sample that is smaller or less balanced than requested."""
        few = len(found.indices) < sample.count
        taken = f"{len(found.indices):,} of the {sample.count:,} points asked for"
        if few and found.all:
            self.say(f"{place}.sample: {taken} were found; all are taken")
        elif few:
            tries = f"{found.tried:,} tries"
            self.say(f"{place}.sample: only {taken} were found in {tries}; there may be more")
        if not found.balanced and not (few and found.all):
            self.say(
                f"{place}.sample: no Latin hypercube was found that keeps to the constraints; "
                "some values are used more often than others"
            )

    def _named(self, sweep: SweepSettings, place: str, typed: tuple[Axis, ...]) -> Points | None:
        """The named points, each with every combination of the command line's axes."""
        if not sweep.points:
            return None
        rows = []
        taken = {name for axis in typed for name in axis.names} | set(self.fixed)
        for name, values in sweep.points.items():
            where = f"{place}.points.{name}"
            if name in self.named:
                raise ConfigError(
                    f"another point has that name: {self.named[name]}",
                    key=where,
                    hint="Give each a name of its own.",
                )
            self.named[name] = where
            row: Row = {POINT: name}
            for text, value in _flat(values).items():
                override = self._override(text, where)
                if override.key in taken:
                    raise ConfigError(
                        f"'{override.key}' has a value on the command line, too",
                        key=where,
                        hint=f"{_deletion_override(where)} takes this point out of the sweep.",
                    )
                self.check(replace(override, values=(value,)))
                row[override.key] = value
            rows.append(row)
        return Space((*typed, Rows(rows))).valid()


def _matches_any(test: Constraint, space: Space) -> bool:
    """Whether an exclusion can match; a sample alone does not show that."""
    return not isinstance(test, Exclude) or test.matches_any(space)


def _empty_sweep_error(found: Selection, texts: Sequence[str], place: str) -> ConfigError:
    """The error for an empty sweep: which constraints removed all points, or why none was found."""
    removed_by = [
        f"{text} removed {removed:,}"
        for text, removed in zip(texts, found.removed, strict=True)
        if removed
    ]
    by = ", ".join(removed_by)
    hint = "Loosen a constraint, or widen an axis."
    if not found.all:
        return ConfigError(
            f"no point was found in {found.tried:,} tries, though there may be some: {by}",
            key=place,
            hint=f"{hint} Keys that follow from each other can be zipped.",
        )
    size = found.space.size
    if found.tried < size:
        by = f"of {found.tried:,} that were tried, {by}"
    return ConfigError(f"no point is left of {size:,}: {by}", key=place, hint=hint)


def _distinct(parts: Iterable[Points], place: str) -> frozenset[str]:
    """All keys of the parts; a key in two parts is refused."""
    seen: set[str] = set()
    for part in parts:
        for key in sorted(part.keys - {POINT}):
            if key in seen:
                raise ConfigError(
                    f"'{key}' is swept twice",
                    key=place,
                    hint="Give its values in one place: on the command line, in axes, in zip or "
                    f"in nested. sweep.axes.{key}=[...] replaces an axis.",
                )
            seen.add(key)
    return frozenset(seen)


def _written(parts: Iterable[Points]) -> frozenset[str]:
    """Keys with expressions among their values."""
    axes = [part for part in parts if isinstance(part, Axis)]
    columns = [pair for axis in axes for pair in zip(axis.names, axis.columns, strict=True)]
    return frozenset(
        key
        for key, values in columns
        if not isinstance(values, range) and any(is_written(key, value) for value in values)
    )


def _flat(values: Mapping[str, Any], *, steps: bool = False, prefix: str = "") -> dict[str, Any]:
    """Nested maps as dotted keys, as on the command line."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and not (steps and _is_steps(value)):
            result |= _flat(value, steps=steps, prefix=f"{key}.")
        else:
            result[key] = value
    return result


def _is_steps(value: Mapping[str, Any]) -> bool:
    """Whether a map is a range of numbers; a `step` alone is an ordinary key."""
    if _POWERS in value or isinstance(value.get("range"), list):
        return True
    return any(isinstance(value.get(n), (int, float)) for n in ("from", "to", "start", "stop"))


def _steps(spec: Mapping[str, Any], place: str) -> Sequence[Any]:
    """The numbers of `{from, to, step}` or `{powers_of_two: [low, high]}`, both ends included."""
    hint = "Write {from: 64, to: 1024, step: 64} or {powers_of_two: [64, 4096]}."
    for name in spec:
        if name not in (*_STEPS, _POWERS):
            raise ConfigError(f"unknown key '{name}'", key=place, hint=hint)
    if _POWERS in spec:
        ends = spec[_POWERS]
        low, high = ends if isinstance(ends, list) and len(ends) == 2 else (0, 0)
        if len(spec) > 1 or type(low) is not int or type(high) is not int or not 0 < low <= high:
            raise ConfigError(f"{dict(spec)} is no range of powers", key=place, hint=hint)
        powers = [2**n for n in range(low.bit_length() - 1, high.bit_length()) if 2**n >= low]
        if not powers:
            raise ConfigError(f"no power of two is between {low} and {high}", key=place)
        return powers
    if "from" not in spec or "to" not in spec:
        raise ConfigError("needs both from and to", key=place, hint=hint)
    first, last, step = spec["from"], spec["to"], spec.get("step", 1)
    for number in (first, last, step):
        if type(number) not in (int, float) or not abs(number) < 1e300:
            raise ConfigError(f"{number!r} is not a number", key=place, hint=hint)
    if not step or (last - first) / step < 0:
        raise ConfigError(f"no step of {step} leads from {first} to {last}", key=place, hint=hint)
    if (last - first) / step >= MAX_VALUES:
        raise ConfigError(f"has more than {MAX_VALUES:,} values", key=place)
    if all(type(number) is int for number in (first, last, step)):
        return range(first, last + (1 if step > 0 else -1), step)
    if (last - first) / step >= _MAX_FLOATS:
        raise ConfigError(f"has more than {_MAX_FLOATS:,} values", key=place)
    from decimal import Decimal

    start, distance, by = (Decimal(str(n)) for n in (first, last, step))
    return [float(start + by * n) for n in range(int((distance - start) / by) + 1)]


def _deletion_override(place: str) -> str:
    """The word that deletes an entry: `~sweep.zip.0` for `sweep.zip[0]`."""
    return f"~{place.replace('[', '.').replace(']', '')}"
