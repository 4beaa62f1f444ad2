"""pytest plugin: collects scenes of Python files and of scenes/*.yaml, and runs their cases.

Imports nothing of the engine until there is a scene, except the names of its flags.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kernloom.run.assembly import Assembly
    from kernloom.scene.choosing import Choice, Pick
    from kernloom.scene.reading import SceneSpec

_SCENE_MODULE = "kernloom.scene.scene"
_ASSEMBLIES = pytest.StashKey[dict[Path | None, "Assembly"]]()
_CHOICE = pytest.StashKey["Choice"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    from kernloom.base.scene_flags import MANUAL, PREFIX, SWITCHES, VALUES

    group = parser.getgroup("kernloom", "scenes of Kernloom")
    for name, (value, about) in VALUES.items():
        allowed = {"choices": MANUAL} if name == "manual" else {}
        group.addoption(f"--{PREFIX}{name}", default="", metavar=value, help=about, **allowed)
    for name, about in SWITCHES.items():
        group.addoption(f"--{PREFIX}{name}", action="store_true", help=about)


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | None:
    """Collect a class that is a scene; there is none before a file has imported the base class."""
    module = sys.modules.get(_SCENE_MODULE)
    if module is None or not isinstance(obj, type) or not issubclass(obj, module.Scene):
        return None
    if not hasattr(obj, "workload"):
        return _Nothing.from_parent(collector, name=name)
    return SceneCollector.from_parent(collector, name=name, scene=obj)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A YAML file in the folder scenes/ of a project, or of Kernloom."""
    if file_path.suffix != ".yaml" or file_path.parent.name != "scenes":
        return None
    above = file_path.parent.parent
    if not (above / "kernloom.yaml").is_file() and not (above / "configs/kernloom.yaml").is_file():
        return None
    return SceneFile.from_parent(parent, path=file_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that the flags do not choose."""
    cases = [item for item in items if isinstance(item, SceneItem)]
    if not cases:
        return
    from kernloom.base.errors import UsageError
    from kernloom.scene.choosing import check_named

    choice = _choice(config)
    try:
        check_named(choice, [item.pick.scene for item in cases])
    except UsageError as error:
        raise pytest.UsageError(f"--kernloom-case: {error}") from None
    left_out = [item for item in cases if not choice.includes(item.pick)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


class _Nothing(pytest.Collector):
    """A base class of scenes, without cases of its own."""

    def collect(self) -> list[pytest.Item]:
        return []


class _Scenes(pytest.Collector, ABC):
    """Collects the cases of scenes."""

    @abstractmethod
    def specs(self) -> list[SceneSpec]:
        """The scenes, read from a class or a file."""

    def collect(self) -> Iterator[pytest.Item]:
        from kernloom.base.errors import KernloomError
        from kernloom.scene.choosing import picks_of
        from kernloom.scene.overrides import check_scene
        from kernloom.scene.selection import check_choice

        try:
            assembly, choice = _assembly(self.config, self.path), _choice(self.config)
            check_choice(choice, assembly)
            for spec in self.specs():
                check_scene(spec, assembly)
                for pick in picks_of(spec, assembly.composer, choice.runtimes):
                    name = f"{pick.case.name}[{pick.place}]"
                    yield SceneItem.from_parent(self, name=name, pick=pick)
        except KernloomError as error:
            raise self.CollectError(str(error)) from None


class SceneCollector(_Scenes):
    """A scene written as a class."""

    def __init__(self, *, scene: type, **options: Any) -> None:
        super().__init__(**options)
        self._scene = scene

    def specs(self) -> list[SceneSpec]:
        from kernloom.scene.reading import from_class

        return [from_class(self._scene, self.path)]


class SceneFile(_Scenes, pytest.File):
    """A scene written in YAML."""

    def specs(self) -> list[SceneSpec]:
        from kernloom.scene.reading import read_file

        return read_file(self.path)


class SceneFailure(Exception):
    """A case that did not verify; its text says why."""


class SceneItem(pytest.Item):
    """One case on one target."""

    def __init__(self, *, pick: Pick, **options: Any) -> None:
        super().__init__(**options)
        self.pick = pick

    def runtest(self) -> None:
        from kernloom.scene.running import SceneRunner

        runner = SceneRunner(_assembly(self.config, self.path), _choice(self.config))
        results = runner.run([self.pick])
        if results.interrupted:
            raise KeyboardInterrupt
        (ended,) = results.ended
        for warning in ended.trial.warnings:
            self.add_report_section("call", "kernloom", warning)
        if ended.trial.status == "unavailable":
            pytest.skip(f"{self.pick.target} is not available here: {ended.trial.message}")
        if not ended.good:
            raise SceneFailure(ended.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, SceneFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.pick.scene.name}::{self.name}"


def _assembly(config: pytest.Config, path: Path) -> Assembly:
    """The engine for the project of a file; one for all files of a project."""
    from kernloom.base.places import find_places
    from kernloom.run.assembly import Assembly

    places = find_places(path.parent)
    known = config.stash.setdefault(_ASSEMBLIES, {})
    if places.project not in known:
        known[places.project] = Assembly(places)
    return known[places.project]


def _choice(config: pytest.Config) -> Choice:
    """The choice of the flags."""
    from kernloom.base.scene_flags import PREFIX, SWITCHES, VALUES
    from kernloom.scene.choosing import choice_of

    if _CHOICE not in config.stash:
        given = {name: config.getoption(f"--{PREFIX}{name}") for name in (*VALUES, *SWITCHES)}
        config.stash[_CHOICE] = choice_of(
            {name: str(value) for name, value in given.items() if value}
        )
    return config.stash[_CHOICE]
