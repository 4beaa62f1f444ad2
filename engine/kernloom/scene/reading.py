"""Scenes read from YAML files, Python files and classes; mistakes are named when they are read."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, KernloomError, nearest
from kernloom.base.places import Places
from kernloom.base.streams import stdout_to_stderr
from kernloom.config.convert import convert
from kernloom.config.reader import read_yaml
from kernloom.config.schema import Tolerance
from kernloom.scene.scene import FIELDS, KEYS, Case, Scene

FOLDER = "scenes"
"""Folder of a project, and of Kernloom, with scenes that `check` runs."""


@dataclass(frozen=True)
class _Fields:
    """The fields of a case as a file gives them."""

    targets: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    golden: Mapping[str, str] = field(default_factory=dict)
    tolerance: Mapping[str, float | str] = field(default_factory=dict)
    manual: bool | None = None
    skip_golden: bool | None = None


@dataclass(frozen=True)
class _SceneFields(_Fields):
    workload: str = ""
    about: str = ""
    cases: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SceneSpec:
    """A scene read from YAML or from a class."""

    name: str
    workload: str
    cases: tuple[Case, ...]
    """With the scene's own fields as defaults."""
    file: Path
    about: str = ""
    code: Scene | None = None
    """An instance of the class, if its methods fill arguments or compute goldens."""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.name}" if self.code else str(self.file)


def read_scenes(places: Places) -> list[SceneSpec]:
    """The scenes of the project and of Kernloom; a project's file hides a shipped one of the same
    name."""
    files: dict[str, Path] = {}
    for folder in places.folders(FOLDER):
        for path in sorted(folder.iterdir()):
            if path.suffix in (".yaml", ".py") and not path.name.startswith((".", "_")):
                files.setdefault(path.stem, path)
    found: dict[str, SceneSpec] = {}
    for path in files.values():
        for scene in read_file(path):
            if scene.name in found:
                raise ConfigError(
                    f"the scene '{scene.name}' is in {found[scene.name].file} as well",
                    key=str(path),
                )
            found[scene.name] = scene
    return list(found.values())


def read_file(path: Path) -> list[SceneSpec]:
    """The scenes of a file: one of a YAML file, all classes of a Python file."""
    if path.suffix == ".yaml":
        return [_from_yaml(path)]
    return classes_of(_imported(path), path)


def _from_yaml(path: Path) -> SceneSpec:
    data = read_yaml(path)
    if not isinstance(data, Mapping):
        raise ConfigError("expected keys and values at the top", key=str(path))
    return _spec(path.stem, data, path, str(path))


def classes_of(module: Any, path: Path) -> list[SceneSpec]:
    """The scenes that a module defines itself."""
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Scene)
        and value.__module__ == module.__name__
        and hasattr(value, "workload")
    ]
    return [from_class(scene, path) for scene in own]


def from_class(scene: type[Scene], path: Path) -> SceneSpec:
    """A scene written as a class; a method in the place of a map is called when it runs."""
    where = f"{path}: {scene.__qualname__}"
    data = {name: getattr(scene, name) for name in KEYS if hasattr(scene, name)}
    methods = [name for name in ("arguments", "golden") if callable(data[name])]
    for name in methods:
        del data[name]
    data["cases"] = _by_name(data.get("cases", ()), where)
    spec = _spec(scene.__name__, data, path, where)
    own = any(getattr(scene, name) is not getattr(Scene, name) for name in methods)
    return replace(spec, code=_instance(scene, where) if own else None)


def _instance(scene: type[Scene], where: str) -> Scene:
    try:
        return scene()
    except Exception as error:  # code of the user
        raise ConfigError(
            f"cannot be created: {type(error).__name__}: {error}", key=where
        ) from None


def _by_name(cases: object, where: str) -> dict[str, dict[str, Any]]:
    """The fields that the cases of a class set, by the name of each."""
    found: dict[str, dict[str, Any]] = {}
    if not isinstance(cases, list | tuple):
        raise ConfigError(f"expected a list of cases, not {cases!r}", key=f"{where}.cases")
    for case in cases:
        if not isinstance(case, Case) or not case.name:
            raise ConfigError(f"{case!r} is no case with a name", key=f"{where}.cases")
        if case.name in found:
            raise ConfigError(f"two cases have the name '{case.name}'", key=f"{where}.cases")
        plain = Case()
        given = {name: getattr(case, name) for name in FIELDS}
        found[case.name] = {n: v for n, v in given.items() if v != getattr(plain, n)}
    return found


def _spec(name: str, data: Mapping[str, Any], path: Path, where: str) -> SceneSpec:
    for key in data:
        if key not in KEYS:
            raise ConfigError(f"a scene has no '{key}'", key=where, hint=nearest(str(key), KEYS))
    read = convert(_SceneFields, data, where)
    if not read.workload:
        raise ConfigError("names no workload", key=f"{where}.workload")
    if not read.cases:
        raise ConfigError("has no cases", key=f"{where}.cases")
    shared = _case("", read)
    cases = tuple(
        _case(case, _case_fields(given, f"{where}.cases.{case}")).with_defaults(shared)
        for case, given in read.cases.items()
    )
    for case in cases:
        _check_names(case, f"{where}.cases.{case.name}")
    return SceneSpec(name, read.workload, cases, path, read.about)


def _case_fields(given: Any, where: str) -> _Fields:
    given = {} if given is None else given
    if isinstance(given, Mapping):
        for key in given:
            if key not in FIELDS:
                raise ConfigError(
                    f"a case has no '{key}'", key=where, hint=nearest(str(key), FIELDS)
                )
    return convert(_Fields, given, where)


def _case(name: str, read: _Fields) -> Case:
    return Case(name=name, **{item: getattr(read, item) for item in FIELDS})


def _check_names(case: Case, where: str) -> None:
    if not case.targets:
        raise ConfigError("has no targets", key=f"{where}.targets")
    # Flags name cases with commas between them.
    unfit = any(mark in case.name for mark in ("::", "[", "]", ","))
    if unfit or not case.name.strip() or not case.name.isprintable():
        raise ConfigError(f"{case.name!r} cannot be the name of a case", key=where)
    for field_name in ("targets", "runtimes"):
        names = list(getattr(case, field_name))
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"names '{name}' twice", key=f"{where}.{field_name}")
    for key in case.tolerance:
        if key not in Tolerance.__dataclass_fields__:
            hint = nearest(key, Tolerance.__dataclass_fields__)
            raise ConfigError(f"unknown key '{key}'", key=f"{where}.tolerance", hint=hint)
    for key, value in case.tolerance.items():
        if not isinstance(value, str) and not 0 <= value < math.inf:
            raise ConfigError(
                f"{value} is no tolerance",
                key=f"{where}.tolerance.{key}",
                hint="Allowed: numbers from 0, and expressions of sizes.",
            )


def _imported(path: Path) -> Any:
    """The module of a Python file, imported under a name that no other module has."""
    name = f"kernloom_scenes_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError("is no Python file", key=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with stdout_to_stderr():
            spec.loader.exec_module(module)
    except KernloomError as error:
        raise ConfigError(error.message, key=str(path), hint=error.hint) from None
    except (Exception, SystemExit) as error:  # code of the user
        raise ConfigError(
            f"cannot be imported: {type(error).__name__}: {error}", key=str(path)
        ) from error
    return module


def names_of(scenes: Sequence[SceneSpec]) -> list[str]:
    """`NAME` and `NAME::CASE` of all scenes."""
    return [
        *(scene.name for scene in scenes),
        *(f"{scene.name}::{case.name}" for scene in scenes for case in scene.cases),
    ]
