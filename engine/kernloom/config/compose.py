"""Composition: overrides to plain, resolved data, one mapping per point.

Hydra composes once per choice of groups. Compositions are cached on disk until a config file
changes, so most starts do not import Hydra.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kernloom.base.code_stamp import code_stamp
from kernloom.base.digest import DigestCache, Section, as_section
from kernloom.base.errors import ConfigError, UsageError, nearest, without_password
from kernloom.base.files import canonical_json, sha256_json, tree_stamps
from kernloom.base.recalled import Recalled
from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.config.groups import REGISTERED, Groups
from kernloom.config.machines import machine_of, with_machine
from kernloom.config.naming import EXPERIMENT
from kernloom.config.override_parser import HYDRA, parse_overrides
from kernloom.config.overrides import Override, Overrides, is_open
from kernloom.config.registered import RegisteredOptions
from kernloom.config.search_path import KEY as SEARCH_PATH
from kernloom.config.search_path import added_folders, split_search_path
from kernloom.config.settings import SweepSettings
from kernloom.config.sweeps import (
    NOT_SWEPT,
    POINT,
    Reader,
    changed,
    describes_points,
    has_points,
    read_sweep,
)
from kernloom.config.values import apply, merged, resolve
from kernloom.space.axes import Axis, Row, rows_of
from kernloom.space.constraints import config_value, raw_value

if TYPE_CHECKING:
    from kernloom.config.hydra_compose import HydraComposer

MAX_POINTS = 200_000
RUNTIME = "runtime"
NO_RUNTIME = "none"
"""The runtime of targets that have no task runtimes."""
CASE_KEYS = ("sizes", "scalars", "tensors", "dtype")
"""Keys that a case of a workload may change."""
_READING = (
    "hydra_compose",
    "hydra_search_path",
    "naming",
    "resolvers",
    "yaml_source",
    "reader",
    "yaml_builder",
)
"""Modules that decide how config files are read; part of the cache's stamp."""
_NO_SWEEP: Section[Any] = Section()
"""The `sweep` section of every point: empty, since a point is not a sweep."""
Refuse = Callable[[Row, ConfigError], None]
"""Called with a point that cannot be composed, and why; the other points of the sweep go on."""
ResolveArch = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Composed data -> its arch section with `native` made concrete."""


@dataclass(frozen=True)
class Point(Recalled):
    """One point of a sweep: the swept keys with their values, and the resolved config."""

    recalled: ClassVar[tuple[str, ...]] = ("data", "overrides")

    swept: dict[str, Any]
    data: Mapping[str, Any]
    """The resolved config; converted to a section."""
    overrides: Overrides = field(default_factory=Overrides)
    """Overrides that compose this point again, each with its one value here."""
    again: Callable[[], Point] | None = field(default=None, compare=False, repr=False)
    """Composes the point again."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", as_section(self.data))

    @property
    def words(self) -> tuple[str, ...]:
        """The overrides as they are stored with a trial."""
        return self.overrides.text

    def recall(self) -> None:
        if self.again is None:
            super().recall()
            return
        same = self.again()
        for name in self.recalled:
            object.__setattr__(self, name, getattr(same, name))


class Composer:
    """Composes configs from the shipped and the project's configs/ folders."""

    def __init__(
        self,
        folders: Sequence[Path],
        cache: Path,
        resolve_arch: ResolveArch,
        say: Callable[[str], None] = lambda note: None,
        results: DigestCache | None = None,
    ) -> None:
        self._cache = cache
        self._registered = RegisteredOptions(cache / REGISTERED)
        self._own_folders = list(folders)
        self._folders: list[Path] = []
        self._use_folders(())
        self._resolve_arch = resolve_arch
        self._say = say
        """Called with notes about a sweep or config files that are not errors."""
        self._results = DigestCache() if results is None else results
        """Cache of results derived from sections of composed configs."""
        self._stamp = ""

    @property
    def folders(self) -> Sequence[Path]:
        """Every folder of config files, highest priority first."""
        return self._folders

    def _use_folders(self, added: Sequence[Path]) -> None:
        folders = [*self._own_folders, *added]
        if folders != self._folders:
            self._folders = folders
            self._groups = Groups(folders, self._registered)
            self._stamp = ""
            self.__dict__.pop("_hydra", None)

    def options(self, group: str) -> list[str]:
        return self._groups.options(group)

    def parse(self, words: Sequence[str], *, multirun: bool, to_hydra: bool = False) -> Overrides:
        """Parse words to overrides; with `to_hydra`, Hydra's own settings are allowed.

        Folders of `hydra.searchpath` are used from here on. The override stays among the others, as
        absolute paths: it is needed to compose a point again elsewhere.
        """
        given, rest = split_search_path(words)
        added = added_folders(given, self._own_folders)
        before = self._folders[len(self._own_folders) :]
        # Other overrides of this command may have added folders before.
        self._use_folders([*before, *(folder for folder in added if folder not in before)])
        overrides = parse_overrides(rest, self._groups, multirun=multirun, to_hydra=to_hydra)
        if not given:
            return overrides
        return overrides.then([Override.of(SEARCH_PATH, list(map(str, added)), group=False)])

    def choose(self, values: Mapping[str, Any]) -> Overrides:
        """Overrides that set keys to these values."""
        exists = self._groups.exists
        return Overrides(tuple(Override.of(k, v, group=exists(k)) for k, v in values.items()))

    def points(self, overrides: Overrides, *, refuse: Refuse | None = None) -> Iterator[Point]:
        """Every point of the overrides, in Hydra's order: the last axis moves fastest. `refuse`
        gets the points whose group options cannot be composed; without it they raise.

        Config files are checked for changes on each call.
        """
        self._stamp = self._stamped()
        for override in overrides:
            self._check_options(override)
        _check_axes(overrides)
        sweep = self._sweep(overrides)
        if describes_points(sweep) and not overrides.multirun:
            preset = overrides.values(EXPERIMENT)
            raise UsageError(
                f"experiment={preset[-1]} is a sweep, but this is a single run"
                if preset and not overrides.mentions("sweep")
                else "a sweep is described, but this is a single run",
                hint="Add -m to carry it out" + ("." if preset else ", or say sweep=none."),
            )
        yield from self._points(sweep, overrides.without("sweep"), refuse)

    def _points(
        self, sweep: SweepSettings, plain: Overrides, refuse: Refuse | None
    ) -> Iterator[Point]:
        """The points of a sweep, combined with the axes of the command line."""
        typed = plain.swept_keys
        known: dict[Any, Any] = {}

        def look_up(row: Row, name: str) -> Any:
            try:
                return self._value(chosen(row), name, known)
            except ConfigError as error:
                raise error_at_point(error, row) from None

        def chosen(row: Row) -> list[tuple[Override, Any]]:
            said = [(o, row[o.key] if o.swept else _first(o)) for o in plain]
            more = [(key, value) for key, value in row.items() if key not in typed]
            return said + [(reader.overrides[key], v) for key, v in more if key != POINT]

        reader = Reader(
            groups=self._groups,
            check=self._check_options,
            fixed={o.key: _first(o) for o in plain if not o.swept and o.kind != "delete"},
            look_up=look_up,
            say=self._say,
        )
        axes = [Axis((o.key,), (o.values,)) for o in plain if o.swept]
        points = reader.points(sweep, axes)
        if points.size > MAX_POINTS:
            raise UsageError(
                f"this sweep has {points.size:,} points; more than {MAX_POINTS:,} are not planned",
                hint="Sweep over fewer values, or take some points: sweep.sample.count=1000.",
            )

        def point(row: Row) -> Point:
            pairs = chosen(row)
            try:
                here = Overrides(tuple(override.at(value) for override, value in pairs))
                return Point(row, self._data(pairs), here, partial(point, row))
            except ConfigError as error:
                raise error_at_point(error, row) from None

        collapsed: set[str] = set()
        for row in map(self._with_runtime, rows_of(points)):
            if row.get(RUNTIME) == NO_RUNTIME:
                text = canonical_json(row)
                if text in collapsed:
                    continue
                collapsed.add(text)
            try:
                made = point(row)
            except ConfigError as error:
                if refuse is None or not self.sweeps_groups(row) or self._composes(chosen(row)):
                    raise
                refuse(row, error)
            else:
                yield made

    def _with_runtime(self, row: Row) -> Row:
        """A point of a sweep over targets and runtimes: a target without runtimes has one point
        for all of them."""
        if RUNTIME not in row or row.get("target") not in self.options("target"):
            return row
        if self.runtime_of(str(row["target"])) != NO_RUNTIME:
            return row
        return {**row, RUNTIME: NO_RUNTIME}

    def runtime_of(self, target: str) -> str:
        """The default runtime of a target; `none` for one without task runtimes."""
        own = self._groups.defaults(self._groups.read("target", target))
        return own.get(RUNTIME, NO_RUNTIME)

    def sweeps_groups(self, swept: Mapping[str, Any]) -> bool:
        """Whether a swept key of a point is a config group."""
        return any(self._groups.exists(key.partition("@")[0]) for key in swept)

    def check_composes(self, overrides: Overrides, *, resolved: bool) -> Mapping[str, Any]:
        """The config composed from the groups, once it is certain that the values fit it, and that
        its references resolve; no point of a sweep is applied."""
        self._stamp = self._stamped()
        for override in overrides:
            self._check_options(override)
        self._sweep(overrides)
        chosen = [(override, _first(override)) for override in overrides.without("sweep")]
        data = self._unresolved(chosen)
        if resolved:
            resolve(data, self._results)
        return self._compose(_groups(chosen))

    def check_for_hydra(self, overrides: Overrides) -> None:
        """Refuse what no job of Hydra could compose, before the first one starts."""
        own = overrides.where(lambda o: not o.key.startswith(HYDRA))
        # Values of axes, and of words that only Hydra can read, are left to Hydra.
        known = own.where(lambda o: bool(o.values) or o.kind == "delete")
        for override in known:
            self._check_options(override)
        if describes_points(self._sweep(known)):
            preset = known.values(EXPERIMENT)
            said = f"experiment={preset[-1]} describes a" if preset else "this is a"
            raise UsageError(
                f"{said} sweep by Kernloom, and Hydra would enumerate the points itself",
                hint="Leave away what is Hydra's; or the sweep, and give the axes as overrides.",
            )
        if not any(o.group and o.swept for o in own):
            # Else a key may be of one option only; each job checks its own.
            checked = known.then(o for o in own if o.swept and not o.values)
            self.check_composes(checked.where(lambda o: not is_open(o.key)), resolved=False)

    def composed_groups(self, point: Point) -> Section[Any]:
        """The config composed from a point's group options, without its value overrides."""
        return self._data([(o, _first(o)) for o in point.overrides if o.group])

    def _composes(self, chosen: Sequence[tuple[Override, Any]]) -> bool:
        """Whether the chosen options can be composed, whatever the values of other keys."""
        try:
            self._data([(override, value) for override, value in chosen if override.group])
        except ConfigError:
            return False
        return True

    def _sweep(self, overrides: Overrides) -> SweepSettings:
        """Sweep settings of file and command line, without the command line's axes."""
        first = [(override, _first(override)) for override in overrides]
        try:
            composed = self._compose(_groups(first))
        except ConfigError:
            # One option of a swept group may be wrong; the sweep settings do not depend on it.
            first = [(o, value) for o, value in first if not (o.group and o.swept)]
            composed = self._compose(_groups(first))
        mine = [(o, value) for o, value in first if o.root == "sweep"]
        for override, value in mine:
            if override.group and value != "none" and self._may_change_others(override, value):
                without = self._compose(_groups([pair for pair in first if pair not in mine]))
                if {**composed, "sweep": None} != {**without, "sweep": None}:
                    raise ConfigError(
                        f"configs/sweep/{value}.yaml changes more than the sweep",
                        key="sweep",
                        hint="Say the rest on the command line, or in a config of its own group.",
                    )
        said = [(o, value) for o, value in mine if not o.group]
        sweep = read_sweep(changed(composed.get("sweep") or {}, said))
        chosen = [value for o, value in mine if o.group and value != "none"]
        if chosen and not has_points(sweep) and not overrides.swept_keys:
            self._say(f"sweep={chosen[-1]} has no axes and no points of its own: this is one point")
        return sweep

    def _may_change_others(self, override: Override, value: Any) -> bool:
        """Whether an option may change other sections than its own; certain only once composed."""
        if override.package:
            return True
        return not self._groups.changes_own_section_only(override.key, str(value))

    def _value(self, chosen: list[tuple[Override, Any]], name: str, known: dict[Any, Any]) -> Any:
        """The value at a key of a point's config, cached if no swept value affects it."""
        told = [(o, value) for o, value in chosen if o.swept]
        deciding = [v for o, v in told if o.group or o.key.startswith(("case", "workload.cases"))]
        key = (name, *deciding) if all(_is_scalar(value) for _, value in told) else None
        if key and key in known:
            return known[key]
        value = config_value(self._data(chosen), name)
        if key and _is_number(raw_value(self._unresolved(chosen), name)):
            known[key] = value
        return value

    def chosen(self, overrides: Overrides, group: str) -> list[str]:
        """The chosen options of a group, or the default of a preset or of the root config."""
        named = [str(value) for value in overrides.values(group)]
        presets = [(EXPERIMENT, str(name)) for name in overrides.values(EXPERIMENT) if name]
        for place in (*presets, ("", "kernloom")):
            if not named:
                # An error in a preset is reported when it is composed.
                with contextlib.suppress(ConfigError):
                    option = self._groups.defaults(self._groups.read(*place)).get(group)
                    named = [option] if option else []
        return named or [""]

    def _check_options(self, override: Override) -> None:
        """Refuse an unknown option of a group with a clear error, before Hydra composes."""
        if not override.group:
            return
        if override.package:
            # Hydra defines these options; it fails on values that are not text.
            for value in override.values:
                one = isinstance(value, str)
                if not (one if override.kind == "delete" else _is_option(value)):
                    raise ConfigError(f"{value!r} is no option of {override.key}")
            return
        options = self.options(override.key)
        for value in override.values:
            if isinstance(value, list):
                several = ",".join(map(str, value))
                raise ConfigError(
                    f"a list is no option of {override.key}",
                    hint=f"For a sweep over several: -m {override.key}={several}.",
                )
            if value is None and override.key == EXPERIMENT:
                continue  # no preset
            if value not in options:
                raise ConfigError(
                    f"unknown {override.key} '{value}'", hint=nearest(str(value), options)
                )

    def _data(self, chosen: list[tuple[Override, Any]]) -> Section[Any]:
        data = self._unresolved(chosen)
        arch = as_section(self._resolve_arch(data))
        return resolve({**data, "arch": arch, "sweep": _NO_SWEEP}, self._results)

    def _unresolved(self, chosen: list[tuple[Override, Any]]) -> Section[Any]:
        values = [(o, value) for o, value in chosen if not o.group and o.key != SEARCH_PATH]
        composed = self._compose(_groups(chosen))
        data = _applied(composed, values)
        if machine := machine_of(data):
            own = any(o.group and o.key == "toolchain" for o, _ in chosen)
            composed = with_machine(
                composed,
                machine,
                own_toolchain=own or not self._has_targets_toolchain(composed),
                read=self._read_toolchain,
            )
            data = _applied(composed, values)
        for section in ("workload", "arch", "toolchain"):
            if not isinstance(data.get(section), dict):
                raise ConfigError("expected keys and values", key=section)
        if data.get("case") not in (None, "default"):
            # A case changes the workload's defaults; the command line still takes precedence.
            workload = _with_case(data["workload"], composed["workload"], data["case"])
            data = _applied(Section({**composed, "workload": workload}), values)
        return data

    def _has_targets_toolchain(self, composed: Mapping[str, Any]) -> bool:
        """Whether a composed config has the toolchain of its target's file; a preset may have
        chosen another."""
        name = str(composed["target"].get("name"))
        if name not in self.options("target"):
            return True
        own = self._groups.defaults(self._groups.read("target", name)).get("toolchain")
        return own in (None, composed["toolchain"].get("name"))

    def _read_toolchain(self, name: str, folder: Path | None) -> Mapping[str, Any]:
        """A toolchain's config; `folder` is that of the package which may bring it."""
        groups = Groups([*self._folders, folder / "configs"]) if folder else self._groups
        return groups.read("toolchain", name)

    def _compose(self, groups: tuple[str, ...]) -> Section[Any]:
        self._stamp = self._stamp or self._stamped()
        key = (Composer, self._stamp, groups)
        return self._results.by_key(key, lambda: as_section(self._from_disk(groups)))

    def _from_disk(self, groups: tuple[str, ...]) -> dict[str, Any]:
        """The composition of these groups, from the cache if no config file has changed."""
        path = self._cache / f"{sha256_json([self._stamp, groups])}.json"
        with contextlib.suppress(OSError, ValueError):
            return read_sealed(path)
        data = self._hydra.compose(groups)
        if self._hydra.cacheable and not _is_secret(data):
            with contextlib.suppress(OSError):  # the cache only saves time
                write_sealed(path, data)
        return data

    @cached_property
    def _hydra(self) -> HydraComposer:
        from kernloom.config.hydra_compose import HydraComposer

        return HydraComposer(self._folders, self._say)

    def _stamped(self) -> str:
        """A stamp that changes when a config file or the composing code changes."""
        modules = [f"config/{name}" for name in _READING]
        stamps: list[Any] = [code_stamp(*modules, packages=("hydra", "omegaconf", "yaml"))]
        for folder in self._folders:
            stamps.extend(tree_stamps(folder, ".yaml"))
        stamps.append(self._registered.stamp)
        return sha256_json(stamps)


def _is_secret(value: Any) -> bool:
    """Whether a value contains a password, which must not be written to a cache."""
    if isinstance(value, dict):
        return any(map(_is_secret, value.values()))
    if isinstance(value, list):
        return any(map(_is_secret, value))
    return isinstance(value, str) and without_password(value) != value


def error_at_point(error: ConfigError, swept: Mapping[str, Any]) -> ConfigError:
    """The error, extended by the point of the sweep where it occurred."""
    if not swept or getattr(error, "point", None):
        return error
    shown = " ".join(f"{key}={value}" for key, value in swept.items())
    error.message += f" (at the point {shown})"
    error.point = shown  # type: ignore[attr-defined]
    return error


def _check_axes(overrides: Overrides) -> None:
    """Refuse keys that cannot be swept, and keys with two axes."""
    for override in overrides:
        if not override.swept:
            continue
        if override.root in NOT_SWEPT:
            raise UsageError(
                f"'{override.key}' belongs to the whole run, so it cannot be swept",
                hint="Give it one value.",
            )
        same = [o for o in overrides if (o.key, o.package) == (override.key, override.package)]
        if len(same) > 1:
            raise UsageError(
                f"'{override.key}' is swept and stands on the command line twice",
                hint=f"Give all its values at once: {override.key}=a,b,c.",
            )


def _is_option(value: Any) -> bool:
    """Whether a value can name an option of a group, or a list of options."""
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_option, value)))


def _first(override: Override) -> Any:
    return override.values[0] if override.values else None


def _groups(chosen: Sequence[tuple[Override, Any]]) -> tuple[str, ...]:
    return tuple(override.hydra_text(value) for override, value in chosen if override.group)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _applied(data: Section[Any], values: list[tuple[Override, Any]]) -> Section[Any]:
    for override, value in values:
        data = apply(data, override, value)
    return data


def _with_case(final: dict[str, Any], workload: dict[str, Any], case: Any) -> dict[str, Any]:
    cases = final.get("cases")
    cases = cases if isinstance(cases, dict) else {}
    if not isinstance(case, str) or case not in cases:
        raise ConfigError(
            f"workload '{final.get('name')}' has no case '{case}'",
            key="case",
            hint=nearest(str(case), ["default", *cases]),
        )
    change = cases[case] or {}
    if not isinstance(change, dict):
        raise ConfigError("expected keys and values", key=f"workload.cases.{case}")
    for name in change:
        if name not in CASE_KEYS:
            raise ConfigError(
                f"a case cannot change '{name}'",
                key=f"workload.cases.{case}",
                hint=nearest(name, CASE_KEYS),
            )
    result: dict[str, Any] = merged(workload, change)
    return result
