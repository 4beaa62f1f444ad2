"""Puts the parts together: places, composer, stages, services. Imports flow here and no further."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, UnavailableError, nearest
from kernloom.base.places import Places, find_places
from kernloom.base.registry import Registry
from kernloom.base.remember import ById
from kernloom.build.arches import check_runs, is_native, resolve_native, with_vector_bytes
from kernloom.build.artifact import Artifact
from kernloom.build.builder import Builder
from kernloom.build.compile import runner_artifact
from kernloom.build.emulators import FoundEmulator, find_emulator
from kernloom.build.firmware import Firmware, Images
from kernloom.build.package import Package
from kernloom.build.runtimes import host_programs
from kernloom.build.stage import Compile, Compilers
from kernloom.build.toolchains import check_compiles
from kernloom.config.compose import Composer
from kernloom.config.convert import convert
from kernloom.config.schema import Arch, Emulator, Experiment, Target, Toolchain
from kernloom.device.devices import DEVICES
from kernloom.measure.roof import Roofs
from kernloom.measure.rounds import Measure
from kernloom.measure.verify import Verify
from kernloom.pipeline.stage import Stage
from kernloom.plan.inspect import Inspect
from kernloom.plan.render import Render, Renderer
from kernloom.plan.select import BUILT_IN, Providers, Select, TransformNames
from kernloom.plan.transforms import Fuse, Pack, Parallelize, Tile, Transform, Unroll, Vectorize

STAGES: dict[str, type[Stage]] = {
    "inspect": Inspect,
    "select": Select,
    "tile": Tile,
    "pack": Pack,
    "unroll": Unroll,
    "vectorize": Vectorize,
    "parallelize": Parallelize,
    "fuse": Fuse,
    "render": Render,
    "compile": Compile,
    "package": Package,
    "firmware": Firmware,
    "verify": Verify,
    "measure": Measure,
}


class Assembly:
    """Everything one invocation works with, made when first needed."""

    def __init__(self, places: Places | None = None) -> None:
        self.places = places or find_places()
        self.stages: Registry[type[Stage]] = Registry("stage", STAGES, group="kernloom.stages")
        self.compilers = Compilers(self.places.cache)
        self._runners: ById[Artifact] = ById()
        self._arches: ById[dict[str, Any]] = ById()
        self._native: dict[str, dict[str, Any]] = {}
        self._as_asked: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._emulators: dict[tuple[str, str], FoundEmulator] = {}

    @cached_property
    def composer(self) -> Composer:
        folders = self.places.folders("configs")
        return Composer(
            folders,
            self.places.cache / "composed",
            self.resolve_arch,
            say=_say,
        )

    @cached_property
    def planning_services(self) -> Mapping[type, Any]:
        """What plan and build stages may need."""
        return {
            Providers: Providers("provider", BUILT_IN, group="kernloom.providers"),
            TransformNames: TransformNames(list(self.transforms.values())),
            Renderer: Renderer(self.template_folders, self.places.cache / "rendered"),
            Compilers: self.compilers,
            Images: Images(self.compilers, self.places.share),
            Roofs: self.roofs,
        }

    @cached_property
    def roofs(self) -> Roofs:
        """What this machine can do at most, if it was measured."""
        return Roofs(self.places.calibrations, _say)

    @property
    def template_folders(self) -> list[Path]:
        return self.places.folders("templates")

    @cached_property
    def transforms(self) -> Mapping[str, str]:
        """Stage type -> the name of its transform."""
        return {
            name: cls.transform
            for name in self.stages.names()
            if issubclass(cls := self.stages.get(name, key=""), Transform)
        }

    def builder(self, experiment: Experiment | None = None) -> Builder:
        build = experiment.build if experiment else None
        return Builder(
            self.places, jobs=build.jobs if build else 0, keep=build.keep if build else False
        )

    def resolve_arch(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The arch section with `native` made concrete for the toolchain in use."""
        arch: Any = data.get("arch")
        if not isinstance(arch, dict) or not is_native(arch):
            return with_vector_bytes(arch)
        return self._arches.get(self._native_arch, arch, data.get("toolchain"))

    def _native_arch(self, arch: dict[str, Any], data: Any) -> dict[str, Any]:
        from kernloom.base.files import canonical_json

        memo = canonical_json([arch, data])
        if memo not in self._native:
            toolchain = convert(Toolchain, data, "toolchain")
            try:
                found = {toolchain.family: self.compilers.detect(toolchain)}
            except UnavailableError:
                # Said when the point is planned: the others of a sweep go on.
                found = {}
            self._native[memo] = resolve_native(arch, found, self.places.cache)
            self._as_asked.append((self._native[memo], arch))
        return self._native[memo]

    def arch_as_asked(self, arch: dict[str, Any]) -> dict[str, Any]:
        """An arch section as it was before `native` was made concrete on this machine."""
        return next((asked for made, asked in self._as_asked if made == arch), arch)

    def programs(self, experiment: Experiment) -> dict[str, Artifact]:
        """Role -> program that the experiment's device needs built."""
        device = DEVICES.get(experiment.target.device, key="target.device")
        return {role: self._program(role, experiment) for role in device.programs}

    def _program(self, role: str, experiment: Experiment) -> Artifact:
        makers: dict[str, Callable[[Experiment], Artifact]] = {
            "runner": self._runner,
            "counter": lambda _: self._host_programs["counter"],
            "supervisor": lambda _: self._host_programs["supervisor"],
        }
        if role not in makers:
            raise ConfigError(
                f"device '{experiment.target.device}' needs the program '{role}'",
                key="target.device",
                hint=nearest(role, makers),
            )
        return makers[role](experiment)

    def _runner(self, experiment: Experiment) -> Artifact:
        return self._runners.get(
            self._make_runner, experiment.toolchain, experiment.arch, experiment.target
        )

    def _make_runner(self, toolchain: Toolchain, arch: Arch, target: Target) -> Artifact:
        found = self.compilers.detect(toolchain)
        return runner_artifact(toolchain, arch, target.variant, found, self.places.share)

    @cached_property
    def _host_programs(self) -> dict[str, Artifact]:
        """By this machine's own compiler, whatever the experiment's toolchain is."""
        return host_programs(self.places, self.compilers.detect)

    def emulator(self, emulator: Emulator) -> FoundEmulator:
        """The emulator on this machine, looked for once."""
        key = (emulator.program, emulator.minimum_version)
        if key not in self._emulators:
            self._emulators[key] = find_emulator(emulator, self.places.cache)
        return self._emulators[key]

    def check_available(self, experiment: Experiment) -> None:
        """Refuse what this machine cannot run, before anything is built."""
        target, arch = experiment.target, experiment.arch
        device = DEVICES.get(target.device, key="target.device")
        found = self.compilers.detect(experiment.toolchain)
        if sys.platform not in target.systems:
            raise UnavailableError(
                f"target '{target.name}' runs on {', '.join(target.systems)}, not {sys.platform}"
            )
        if target.emulator:
            self.emulator(target.emulator)
        cpu_code = device.runs_cpu_code(target)
        if cpu_code:
            check_runs(target, arch)
        workload = experiment.workload
        dtypes = {tensor.dtype or workload.dtype for tensor in workload.tensors.values()}
        device.check(target, dtypes | {workload.dtype}, cache=self.places.cache)
        if cpu_code:
            check_compiles(found, arch)


def _say(note: str) -> None:
    """Tell the person at the terminal, beside whatever a command prints."""
    print(f"kernloom: {note}", file=sys.stderr)
