"""From command-line words to plain, resolved data: one mapping per point.

Hydra composes once per choice of groups, and what it composed is kept on disk for as long as no
config file changes, so that most starts do without importing it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernloom.code_stamp import code_stamp
from kernloom.config.groups import Groups
from kernloom.config.overrides import Override, parse_overrides
from kernloom.config.values import apply, merged, resolve
from kernloom.errors import ConfigError, UsageError, nearest
from kernloom.files import sha256_json, write_atomically

if TYPE_CHECKING:
    from kernloom.config.hydra_compose import HydraComposer

NOT_SWEPT = ("store", "fleet", "output", "rerun", "recipe", "trace", "show", "sweep", "build")
"""Root keys that say something about the run, not about a point."""
MAX_POINTS = 200_000
CASE_KEYS = ("sizes", "scalars", "tensors", "dtype")
"""What a case of a workload may change."""
ResolveArch = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Composed data -> its arch section with `native` made concrete."""


@dataclass(frozen=True)
class Point:
    """One point of a sweep: the swept keys with their values, and the resolved config."""

    swept: dict[str, Any]
    data: dict[str, Any]
    words: tuple[str, ...] = ()
    """The overrides that compose it again, each with the one value it has here."""


class Composer:
    """Composes configs from the shipped and the project's configs/ folders."""

    def __init__(self, folders: Sequence[Path], cache: Path, resolve_arch: ResolveArch) -> None:
        self._folders = list(folders)
        self._groups = Groups(folders)
        self._cache = cache
        self._resolve_arch = resolve_arch
        self._composed: dict[tuple[str, ...], dict[str, Any]] = {}

    def options(self, group: str) -> list[str]:
        return self._groups.options(group)

    def points(self, words: Sequence[str], *, multirun: bool) -> Iterator[Point]:
        """Every point the words describe, in Hydra's order: the last axis moves fastest."""
        overrides = parse_overrides(words, self._groups, multirun=multirun)
        for override in overrides:
            self._check_options(override)
        _check_axes(overrides)
        axes = [override.values or (None,) for override in overrides]
        for values in itertools.product(*axes):
            chosen = list(zip(overrides, values, strict=True))
            swept = {override.key: value for override, value in chosen if override.swept}
            try:
                yield Point(swept, self._data(chosen), tuple(o.word(v) for o, v in chosen))
            except ConfigError as error:
                raise at_point(error, swept) from None

    def choices(self, words: Sequence[str], key: str) -> list[Any]:
        """The values that the words give to a key; none if they do not name it."""
        overrides = parse_overrides(words, self._groups, multirun=True)
        return [value for o in overrides if o.key == key for value in o.values]

    def _check_options(self, override: Override) -> None:
        """An unknown option of a group is named before Hydra walks into it."""
        if not override.group or override.package:
            return
        options = self.options(override.key)
        for value in override.values:
            if value not in options:
                raise ConfigError(
                    f"unknown {override.key} '{value}'", hint=nearest(str(value), options)
                )

    def _data(self, chosen: list[tuple[Override, Any]]) -> dict[str, Any]:
        groups = tuple(o.hydra_text(value) for o, value in chosen if o.group)
        values = [(override, value) for override, value in chosen if not override.group]
        composed = self._compose(groups)
        data = _applied(composed, values)
        for section in ("workload", "arch", "toolchain"):
            if not isinstance(data.get(section), dict):
                raise ConfigError("expected keys and values", key=section)
        if data.get("case") not in (None, "default"):
            # A case changes the workload's defaults; what the command line says still wins.
            workload = _with_case(data["workload"], composed["workload"], data["case"])
            data = _applied({**composed, "workload": workload}, values)
        return resolve({**data, "arch": self._resolve_arch(data)})

    def _compose(self, groups: tuple[str, ...]) -> dict[str, Any]:
        if groups not in self._composed:
            self._composed[groups] = self._from_disk(groups)
        return self._composed[groups]

    def _from_disk(self, groups: tuple[str, ...]) -> dict[str, Any]:
        """What Hydra composed when the config files were as they are now."""
        path = self._cache / f"{sha256_json([self._stamp, groups])}.json"
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(kept, dict):
                return kept
        except (OSError, ValueError):
            pass
        data = self._hydra.compose(groups)
        with contextlib.suppress(OSError):  # only speed is lost
            write_atomically(path, json.dumps(data))
        return data

    @cached_property
    def _hydra(self) -> HydraComposer:
        from kernloom.config.hydra_compose import HydraComposer

        return HydraComposer(self._folders)

    @cached_property
    def _stamp(self) -> list[Any]:
        """Changes whenever a config file is added, removed or written, or other code composes."""
        modules = [f"config/{name}" for name in ("hydra_compose", "yaml_source", "reader")]
        stamps: list[Any] = [code_stamp(*modules, packages=("hydra", "omegaconf", "yaml"))]
        for folder in self._folders:
            stamps.extend(_stamps(str(folder), set()))
        return stamps


def _stamps(folder: str, seen: set[tuple[int, int]]) -> Iterator[list[Any]]:
    """Name and state of every config file below a folder, through links too, as Hydra reads them.

    Names with a dot in front, an editor's locks among them, are no options of any group.
    """
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            status = entry.stat()
        except OSError:
            continue
        if entry.name.startswith("."):
            continue
        if stat.S_ISDIR(status.st_mode):
            place = (status.st_dev, status.st_ino)
            yield [entry.path, *place]
            if place not in seen:
                seen.add(place)
                yield from _stamps(entry.path, seen)
        elif entry.name.endswith(".yaml"):
            times = (status.st_mtime_ns, status.st_ctime_ns)
            yield [entry.path, *times, status.st_size, status.st_ino]


def at_point(error: ConfigError, swept: Mapping[str, Any]) -> ConfigError:
    """The error, saying at which point of a sweep it arose."""
    if not swept or getattr(error, "point", None):
        return error
    shown = " ".join(f"{key}={value}" for key, value in swept.items())
    error.message += f" (at the point {shown})"
    error.point = shown  # type: ignore[attr-defined]
    return error


def _check_axes(overrides: Sequence[Override]) -> None:
    """Some keys are no axes, and no sweep is so large by intention."""
    count = 1
    for override in overrides:
        count *= max(1, len(override.values))
        if override.swept and override.key.split(".")[0] in NOT_SWEPT:
            raise UsageError(
                f"'{override.key}' belongs to the whole run, so it cannot be swept",
                hint="Give it one value.",
            )
    if count > MAX_POINTS:
        raise UsageError(
            f"this sweep has {count:,} points; more than {MAX_POINTS:,} are not planned",
            hint="Sweep over fewer values, or in parts.",
        )


def _applied(data: dict[str, Any], values: list[tuple[Override, Any]]) -> dict[str, Any]:
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
