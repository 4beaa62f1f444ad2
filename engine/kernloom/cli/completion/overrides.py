"""Candidates for overrides: groups and their options, keys of the composed config, values."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kernloom.cli.completion.candidates import (
    Candidate,
    chosen_from,
    files_after,
    listed_from,
    spelled,
)
from kernloom.cli.completion.composition import (
    Composition,
    about_option,
    options_of,
    section_of_option,
)
from kernloom.cli.completion.constants import constants, literal_fields
from kernloom.config.groups import Groups
from kernloom.config.search_path import KEY as SEARCH_PATH

_SIGN = re.compile(r"(\+\+|\+|~)?(.*)", re.DOTALL)
_FIXED = ("select", "fixed")
_AXES = "sweep.axes."
_BOOLEANS = ("true", "false")
HYDRA_GROUPS = ("hydra/launcher", "hydra/sweeper")
"""Groups of Hydra's own, for its launchers and optimisers."""
_DESCRIBING = ("name", "about")
"""Keys of a section that nobody overrides."""
PLACES = ("host", "device")
_FLEETS = {"local": "fleet/local", "slurm": "fleet/slurm/settings"}
"""Kind of fleet -> the module with its settings."""


@dataclass(frozen=True)
class OverrideCompleter:
    """Completes overrides after the other words of a command line."""

    groups: Groups
    words: Sequence[str]
    """The other words, which choose options of groups."""
    describe: bool
    """Whether the shell shows descriptions, which take time to read."""
    every_workload: bool = False
    """Whether the command is about all workloads unless one is named."""

    def candidates(self, typed: str) -> list[Candidate]:
        """Candidates for an override of which `typed` is the beginning."""
        sign, rest = _SIGN.fullmatch(typed).groups("")  # type: ignore[union-attr]
        key, equals, value = rest.partition("=")
        if equals:
            return [one.after(f"{sign}{key}=") for one in self.values(key, value)]
        return [one.after(sign) for one in self._keys(sign, key)]

    def values(self, key: str, typed: str) -> list[Candidate]:
        """The known values of a key, as single values, several, or a list in brackets."""
        if key in HYDRA_GROUPS:
            return chosen_from(_hydra_options(key.rpartition("/")[2]), typed)
        if key == SEARCH_PATH:
            before, sign, _ = typed.rpartition("," if "," in typed else "[")
            return files_after(before + sign) if sign else [Candidate("[", "more")]
        if key.startswith(_AXES):
            axis = key.removeprefix(_AXES)
            return listed_from(self._options(axis) or self._names(axis), typed)
        group = key.partition("@")[0]
        if options := self._options(group):
            return self._described(group, chosen_from(options, typed))
        if _is_path(key):
            return files_after(yaml=key in ("recipe", "select.file"))
        names = self._names(key)
        if names and (typed.startswith("[") or self._takes_list(key)):
            return listed_from(names, typed)
        return chosen_from(names, typed)

    def packages(self, typed: str) -> list[Candidate]:
        """The sections and values of the composed config, for `--package`."""
        *names, _ = typed.split(".")
        above = "".join(f"{name}." for name in names)
        return [
            Candidate(f"{above}{key}", "more" if isinstance(value, Mapping) else "word")
            for key, value in self.config.section(names).items()
        ]

    def cases(self) -> list[str]:
        """The cases of the chosen workloads."""
        if self.every_workload and "workload" not in self._chosen:
            found = [
                section_of_option(self.groups.folders, "workload", name, "cases")
                for name in self._options("workload")
            ]
        else:
            found = [dict(self.config.section(("workload", "cases")))]
        cases = (str(case) for section in found for case in section)
        return list(dict.fromkeys(("default", *cases)))

    @cached_property
    def config(self) -> Composition:
        """The config that the other words compose."""
        return Composition(self.groups.folders, self._chosen)

    @cached_property
    def _chosen(self) -> dict[str, str]:
        """Group -> option that the other words choose; the first of several."""
        pairs = (word.lstrip("+").partition("=") for word in self.words)
        return {
            key: value.split(",")[0]
            for key, _, value in pairs
            if value and "." not in key and self.groups.exists(key)
        }

    def _options(self, group: str) -> list[str]:
        return options_of(self.groups, group) if self.groups.exists(group) else []

    def _described(self, group: str, candidates: Iterable[Candidate]) -> list[Candidate]:
        if not self.describe:
            return list(candidates)
        return [
            Candidate(one.text, one.kind, about_option(self.groups.folders, group, _last(one.text)))
            for one in candidates
        ]

    def _keys(self, sign: str, typed: str) -> Iterator[Candidate]:
        if typed.startswith(_AXES):
            for one in self._keys("", typed.removeprefix(_AXES)):
                yield one.after(_AXES)
        elif typed.startswith("hydra"):
            yield from (Candidate(f"{key}=", "more") for key in (*HYDRA_GROUPS, SEARCH_PATH))
        elif "." in typed:
            yield from self._inner_keys(sign, typed)
        else:
            yield from self._root_keys(sign, typed)

    def _root_keys(self, sign: str, typed: str) -> Iterator[Candidate]:
        from kernloom.config.schema import ROOT_KEYS

        groups = self.config.groups
        if sign == "+":
            for name in self._folder_names():
                if name not in groups:
                    yield Candidate(f"{name}=", "more", "a group that the config does not have")
        for key in dict.fromkeys((*ROOT_KEYS, *self.config.data)):
            is_section = isinstance(self.config.data.get(key), Mapping)
            if key in groups and sign != "+":
                yield _leaf(sign, key, groups[key])
            if is_section and (key not in groups or typed == key or sign == "+"):
                yield Candidate(f"{key}.", "more")
            if not is_section and key not in groups and sign != "+":
                yield _leaf(sign, key, self.config.data.get(key))

    def _folder_names(self) -> list[str]:
        try:
            found = {path.name for folder in self.groups.folders for path in folder.iterdir()}
        except OSError:
            return []
        return sorted(name for name in found if self.groups.exists(name))

    def _inner_keys(self, sign: str, typed: str) -> Iterator[Candidate]:
        """The keys of the section that is typed already."""
        *names, _ = typed.split(".")
        above = ".".join(names)
        if tuple(names[:2]) == _FIXED:
            for name, value in self._fixed(names[2:]).items():
                if isinstance(value, _Tunable):
                    yield Candidate(f"{above}.{name}=", "more", value.about)
                else:
                    yield Candidate(f"{above}.{name}.", "more")
            return
        section = self.config.section(names)
        known = () if sign == "~" else _schema_keys(names)
        for key in dict.fromkeys((*section, *known)):
            if len(names) == 1 and key in _DESCRIBING:
                continue
            if isinstance(section.get(key), Mapping) or _is_section((*names, key)):
                yield Candidate(f"{above}.{key}.", "more")
            elif not (sign == "+" and key in section):
                yield _leaf(sign, f"{above}.{key}", section.get(key))

    def _names(self, key: str) -> Iterable[Any]:
        """The names that a key can have as its value; none if there is no list of them."""
        path = tuple(key.split("."))
        if path[:2] == _FIXED:
            found = self._fixed(path[2:-1]).get(path[-1])
            return found.values if isinstance(found, _Tunable) else ()
        match path:
            case ("case",):
                return self.cases()
            case ("show",):
                return self.config.section(("pipeline", "stages"))
            case ("target", "variant"):
                return _list(self.config.value(("target", "variants")))
            case ("arch", "vector_bits"):
                return _list(self.config.value(("arch", "vector_lengths")))
            case ("measure", "peers"):
                return _list(constants("run/peers").get("NAMES"))
            case ("workload", "dtype") | ("workload", "tensors", _, "dtype"):
                from kernloom.config.schema import DTYPES

                return DTYPES
            case ("workload", "tensors", _, "place"):
                return PLACES
            case ("fleet", name) if name in self._fleet_choices:
                return self._fleet_choices[name]
        wanted = _schema_type(path)
        if get_origin(wanted) is Literal:
            return get_args(wanted)
        value = self.config.value(path)
        if wanted is bool or isinstance(value, bool):
            return _BOOLEANS
        # The names in a list are known at least.
        return value if isinstance(value, list) and self._takes_list(key) else ()

    @cached_property
    def _fleet_choices(self) -> dict[str, tuple[Any, ...]]:
        """Key of the fleet -> its allowed values."""
        module = _FLEETS.get(str(self.config.value(("fleet", "kind"))), "")
        return literal_fields(module) if module else {}

    @staticmethod
    def _takes_list(key: str) -> bool:
        wanted = _schema_type(key.split("."))
        return get_origin(wanted) is tuple and get_args(wanted)[0] is str

    def _fixed(self, path: Sequence[str]) -> dict[str, Any]:
        """What can follow `select.fixed` and a path: transforms, then tunables and the steps that
        have them, then the tunables of a step."""
        found: dict[str, Any] = {}
        for step, transforms in self._tunables():
            for transform, tunables in transforms.items():
                match list(path):
                    case []:
                        found[transform] = None
                    case [first] if first == transform:
                        found = {**tunables, **found, step: None}
                        found |= {name: _joined(found[name], tunables[name]) for name in tunables}
                    case [first, second] if (first, second) == (transform, step):
                        found |= tunables
        return found

    def _tunables(self) -> Iterator[tuple[str, dict[str, dict[str, _Tunable]]]]:
        """Step -> transform -> name -> tunable, of the sources that the target takes."""
        families = _list(self.config.value(("target", "sources")))
        kernels = self.config.section(("workload", "kernels"))
        for step, call in self.config.section(("workload", "steps")).items():
            kernel = kernels.get(str(_mapping(call).get("kernel")))
            if not isinstance(kernel, Mapping):
                continue
            sources = _mapping(kernel.get("sources"))
            source = next((sources[name] for name in families if name in sources), None)
            own = _mapping(source).get("tunables")
            transforms = _mapping(own if isinstance(own, Mapping) else kernel.get("tunables"))
            yield (
                str(step),
                {
                    str(transform): {
                        str(name): _Tunable(tuple(_list(item.get("values"))), item.get("about", ""))
                        for name, item in _mapping(tunables).items()
                        if isinstance(item, Mapping)
                    }
                    for transform, tunables in transforms.items()
                },
            )


@dataclass(frozen=True)
class _Tunable:
    """A parameter of a kernel."""

    values: tuple[Any, ...]
    about: str = ""


def _joined(one: _Tunable, other: _Tunable) -> _Tunable:
    """A tunable that two kernels have under the same name."""
    return _Tunable(tuple(dict.fromkeys((*one.values, *other.values))), one.about or other.about)


def _leaf(sign: str, key: str, value: Any) -> Candidate:
    """A key with a value; `~key` deletes it and needs none."""
    shown = "" if value is None or isinstance(value, (list, Mapping)) else f"now {spelled(value)}"
    return Candidate(key, "word", shown) if sign == "~" else Candidate(f"{key}=", "more", shown)


def _is_path(key: str) -> bool:
    from kernloom.config.override_parser import PATH_KEYS

    return key != "store.url" and PATH_KEYS.fullmatch(key) is not None


def _hydra_options(kind: str) -> list[str]:
    packages = constants("cli/hydra_app").get("PACKAGES") or {}
    return ["basic", *packages.get(kind, ())]


def _schema_keys(path: Sequence[str]) -> list[str]:
    from kernloom.config.convert import fields_at
    from kernloom.config.schema import Experiment

    return sorted(fields_at(Experiment, path))


def _schema_type(path: Sequence[str]) -> Any:
    from kernloom.config.schema import Experiment

    wanted: Any = Experiment
    for name in path:
        wanted = _inner_type(_required(wanted), name)
    return _required(wanted)


def _is_section(path: Sequence[str]) -> bool:
    """Whether the schema has keys and values at a path."""
    wanted = _schema_type(path)
    origin = get_origin(wanted)
    mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return mapping or hasattr(wanted, "__dataclass_fields__")


def _inner_type(wanted: Any, name: str) -> Any:
    """The type of a key of a section."""
    if hasattr(wanted, "__dataclass_fields__"):
        return get_type_hints(wanted).get(name, Any)
    origin = get_origin(wanted)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return get_args(wanted)[1]
    return Any


def _required(wanted: Any) -> Any:
    """A type without its None."""
    if get_origin(wanted) in (Union, types.UnionType):
        others = [option for option in get_args(wanted) if option is not type(None)]
        return others[0] if len(others) == 1 else Any
    return wanted


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _last(text: str) -> str:
    """The last of several values."""
    return text.rpartition(",")[2]
