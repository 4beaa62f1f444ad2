"""Converts the config of a recipe into one that this machine can run, by the rules of `fields`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Union, get_args, get_origin, get_type_hints

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import canonical_json
from kernloom.config.compose import Composer
from kernloom.config.goldens import golden_file
from kernloom.config.schema import ROOT_KEYS, Arch, Emulator, Experiment, Target, Toolchain
from kernloom.recipe.fields import (
    DEVICE_OPTIONS,
    FIELDS,
    GRAPH_KEYS,
    LOCAL_KEYS,
    STAGE_OPTIONS,
    Rule,
)
from kernloom.recipe.flags import check_flags


class LocalConfigs:
    """The configs of this machine, composed by the names in a recipe."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._composed: dict[tuple[tuple[str, Any], ...], Mapping[str, Any]] = {}

    def options(self, group: str) -> list[str]:
        return self._composer.options(group)

    def composed(self, chosen: Mapping[str, Any]) -> Mapping[str, Any]:
        """The config with these values, shared by all trials of a recipe with the same values."""
        key = tuple(chosen.items())
        if key not in self._composed:
            points = self._composer.points(self._composer.choose(chosen))
            self._composed[key] = next(iter(points)).data
        return self._composed[key]

    def choices(self, config: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The keys that select this machine's toolchain, target and arch for a recipe."""
        arch = config.get("arch")
        arch = arch if isinstance(arch, Mapping) else {}
        chosen: dict[str, Any] = {}
        if isinstance(arch.get("name"), str) and arch["name"] in self.options("arch"):
            chosen["arch"] = arch["name"]
        # Only numbers from the recipe can get into this machine's emulator arguments.
        numbers = (name for name, value in arch.items() if type(value) is int)
        chosen |= {f"arch.{name}": arch[name] for name in numbers if name in FIELDS[Arch]}
        toolchain = self._option(Toolchain, config, chosen, where)
        target = self._option(Target, config, chosen, where)
        variant = config["target"].get("variant")
        if variant in (self.composed({"target": target})["target"].get("machines") or {}):
            # Its machine has an emulator of its own.
            chosen["target.variant"] = variant
        return {"target": target, "toolchain": toolchain, **chosen}

    def _option(
        self, cls: type, config: Mapping[str, Any], chosen: Mapping[str, Any], where: str
    ) -> str:
        """The option of a group that has the name and the SAME fields of the recipe's section.

        In older recipes a user's variation may have the name of the option it is based on: then any
        option with the SAME fields is accepted.
        """
        group = cls.__name__.lower()
        if not isinstance(config.get(group), Mapping):
            raise ConfigError(f"has no {group}", key=where)
        section, options = config[group], self.options(group)
        name = section.get("name")
        if not isinstance(name, str) or name not in options:
            raise ConfigError(
                f"unknown {group} {name!r}",
                key=f"{where}.{group}.name",
                hint=nearest(str(name), options),
            )
        fields = [field for field, rule in FIELDS[cls].items() if rule is Rule.SAME]
        for option in [name, *(other for other in options if other != name)]:
            ours = self.composed({group: option, **chosen})[group]
            if all(_agrees(section.get(field), ours.get(field)) for field in fields):
                return option
        ours = self.composed({group: name, **chosen})[group]
        field = next(f for f in fields if not _agrees(section.get(f), ours.get(f)))
        raise ConfigError(
            f"differs from this machine's {group} '{name}'",
            key=f"{where}.{group}.{field}",
            hint=f"Allowed: {ours.get(field)}. For others, add a {group} of your own.",
        )


def _agrees(theirs: Any, ours: Any) -> bool:
    """Whether a value of a recipe is this machine's. A mapping may lack entries, such as tools that
    a toolchain did not have when the recipe was written."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        return bool(theirs) == bool(ours) and theirs.items() <= ours.items()
    return bool(theirs == ours)


class Replay:
    """Reads the config of one trial of a recipe; `notes` collects deviations from the recipe."""

    def __init__(self, here: LocalConfigs, where: str) -> None:
        self._here = here
        self._where = where
        self._chosen: dict[str, Any] = {}
        self.notes: list[str] = []

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe's config, with everything replaced that must come from this machine."""
        for key in config:
            if key not in ROOT_KEYS or key in LOCAL_KEYS:
                allowed = [name for name in ROOT_KEYS if name not in LOCAL_KEYS]
                hint = nearest(str(key), allowed)
                raise ConfigError(f"unknown key '{key}'", key=self._where, hint=hint)
        self._chosen = self._here.choices(config, self._where)
        return self._section(Experiment, config, self._here.composed(self._chosen), self._where)

    def _section(self, cls: type, data: Any, ours: Any, key: str) -> dict[str, Any]:
        result = dict(_mapping(data, key))
        here = ours if isinstance(ours, Mapping) else {}
        for name, rule in FIELDS[cls].items():
            where = f"{key}.{name}"
            if rule in (Rule.OURS, Rule.ADVICE):
                self._replace(result, name, here, where, noted=rule is Rule.OURS)
            elif rule is Rule.PERMITTED:
                self._check_permitted(result, name, where)
            elif rule is Rule.OPTIONS:
                self._options(result, name, here, where)
            elif rule is Rule.STAGES and name in result:
                pipeline = str(result.get("name"))
                result[name] = {
                    stage: self._stage(pipeline, stage, options, f"{where}.{stage}")
                    for stage, options in _mapping(result[name], where).items()
                }
            elif rule is Rule.COMPUTED:
                self._check_computed(result.get("name"), name, result.get(name), where)
            elif rule is Rule.VALUE:
                if name in result:
                    wanted = _hints(cls)[name]
                    result[name] = self._value(wanted, result[name], here.get(name), where)
            else:
                _check(rule, result.get(name), here.get(name), where, self._here)
        return result

    def _check_computed(self, workload: Any, name: str, value: Any, key: str) -> None:
        """Refuse a Python file that this machine's own workload of that name does not name."""
        for output, text in _mapping(value or {}, key).items():
            if golden_file(text) is None:
                continue
            ours: Any = None
            if workload in self._here.options("workload"):
                data = self._here.composed({**self._chosen, "workload": str(workload)})
                ours = (data["workload"].get(name) or {}).get(output)
            if text != ours:
                raise ConfigError(
                    f"a recipe cannot name a Python file: {text!r}",
                    key=f"{key}.{output}",
                    hint="It runs only where the project's own workload names the same file.",
                )

    def _check_permitted(self, workload: Mapping[str, Any], name: str, key: str) -> None:
        """Refuse what this machine's workload of the same name does not list."""
        given, ours = workload.get(name) or (), ()
        if not given:
            return
        known = str(workload.get("name"))
        if known in self._here.options("workload"):
            ours = self._here.composed({"workload": known})["workload"].get(name) or ()
        if not isinstance(given, list | tuple) or not set(map(str, given)) <= set(ours):
            raise ConfigError(
                f"a recipe cannot allow its own kernels to import {given!r}",
                key=key,
                hint=f"Allow it in a workload '{known}' of your own, if you trust the kernels.",
            )

    def _options(
        self, result: dict[str, Any], name: str, ours: Mapping[str, Any], key: str
    ) -> None:
        """Options of a device: the recipe's, if they are known to be values."""
        known = DEVICE_OPTIONS.get(str(ours.get("device")))
        if known is None:
            self._replace(result, name, ours, key, noted=True)
            return
        for option in _mapping(result.get(name) or {}, key):
            if option not in known:
                hint = nearest(option, known)
                raise ConfigError(f"unknown option '{option}'", key=key, hint=hint)

    def _value(self, wanted: Any, value: Any, ours: Any, key: str) -> Any:
        """A value, with nested dataclasses read by their own rules."""
        wanted = _without_none(wanted)
        if value is None or wanted is Any:
            return value
        if is_dataclass(wanted) and isinstance(wanted, type):
            return self._section(wanted, value, ours, key)
        if get_origin(wanted) is not None and _is_mapping(wanted) and isinstance(value, Mapping):
            here = ours if isinstance(ours, Mapping) else {}
            return {
                name: self._value(get_args(wanted)[1], inner, here.get(name), f"{key}.{name}")
                for name, inner in value.items()
            }
        return value

    def _replace(
        self, result: dict[str, Any], name: str, ours: Mapping[str, Any], key: str, *, noted: bool
    ) -> None:
        given = result.pop(name, None)
        if name in ours:
            result[name] = ours[name]
        if noted and _noted_part(given) != _noted_part(ours.get(name)):
            self.notes.append(f"{key}: this machine's is used, for the recipe has another")

    def _stage(self, pipeline: str, name: str, given: Any, key: str) -> dict[str, Any]:
        stage = dict(_mapping(given, key))
        use = stage.get("use")
        if not isinstance(use, str) or use not in STAGE_OPTIONS:
            if stage != self._own_stage(pipeline, name):
                raise ConfigError(
                    f"stage type {use!r} is none of Kernloom's own, and this machine's pipeline "
                    f"'{pipeline}' has no such stage",
                    key=f"{key}.use",
                    hint=nearest(str(use), STAGE_OPTIONS),
                )
            return stage
        for option, rule in STAGE_OPTIONS[use].items():
            if option not in GRAPH_KEYS:
                _check(rule, stage.get(option), None, f"{key}.{option}", self._here)
        return stage

    def _own_stage(self, pipeline: str, name: str) -> Any:
        """A stage of this machine's pipeline of that name, if there is one."""
        if pipeline not in self._here.options("pipeline"):
            return None
        data = self._here.composed({**self._chosen, "pipeline": pipeline})
        return data["pipeline"]["stages"].get(name)


def _check(rule: Rule, value: Any, ours: Any, key: str, here: LocalConfigs) -> None:
    """Refuse a value that a rule does not allow."""
    if rule is Rule.NAME:
        group = key.split(".")[-2]
        if value not in here.options(group):
            hint = nearest(str(value), here.options(group))
            raise ConfigError(f"unknown {group} {value!r}", key=key, hint=hint)
    elif rule is Rule.FLAGS and value is not None:
        if isinstance(value, Mapping):
            known = ours if isinstance(ours, Mapping) else {}
            for name, flags in value.items():
                check_flags(flags, known.get(name), f"{key}.{name}")
        else:
            check_flags(value, ours, key)
    elif rule is Rule.PATH and value is not None:
        path = PurePosixPath(value) if isinstance(value, str) else None
        if path is None or path.is_absolute() or ".." in path.parts or "\0" in str(value):
            raise ConfigError(
                f"{value!r} is no relative path inside the template or project folder", key=key
            )
    elif rule is Rule.NEVER and value:
        raise ConfigError("a recipe cannot name a file of parameters", key=key)


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError("expected keys and values", key=key)
    return value


def _noted_part(value: Any) -> str:
    """The part of a value that a note shows: for an emulator, without its installation."""
    if isinstance(value, Mapping):
        rules = FIELDS[Emulator]
        value = {k: v for k, v in value.items() if rules.get(k) is not Rule.ADVICE and v}
    return canonical_json(value or None)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _without_none(wanted: Any) -> Any:
    if get_origin(wanted) in (Union, types.UnionType):
        others = [option for option in get_args(wanted) if option is not type(None)]
        return others[0] if len(others) == 1 else Any
    return wanted


def _is_mapping(wanted: Any) -> bool:
    origin = get_origin(wanted)
    return isinstance(origin, type) and issubclass(origin, Mapping)
