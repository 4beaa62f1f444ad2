"""Puts the parts together: places, composer, stages, services. Imports flow here and no further."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from kernloom.build.arches import NATIVE, missing_features, resolve_native
from kernloom.build.artifact import Artifact
from kernloom.build.builder import Builder
from kernloom.build.compile import runner_artifact
from kernloom.build.stage import Compile, Compilers
from kernloom.config.compose import Composer
from kernloom.config.convert import convert
from kernloom.config.schema import Arch, Experiment, Target, Toolchain
from kernloom.device.devices import DEVICES
from kernloom.errors import UnavailableError
from kernloom.measure.rounds import Measure
from kernloom.measure.verify import Verify
from kernloom.pipeline.stage import Stage
from kernloom.places import Places, find_places
from kernloom.plan.inspect import Inspect
from kernloom.plan.render import Render, Renderer
from kernloom.plan.select import BUILT_IN, Providers, Select, TransformNames
from kernloom.plan.transforms import Fuse, Pack, Parallelize, Tile, Transform, Unroll, Vectorize
from kernloom.registry import Registry
from kernloom.remember import ById

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
        self._arches: dict[str, dict[str, Any]] = {}

    @cached_property
    def composer(self) -> Composer:
        folders = self.places.folders("configs")
        return Composer(folders, self.places.cache / "composed", self.resolve_arch)

    @cached_property
    def planning_services(self) -> Mapping[type, Any]:
        """What plan and build stages may need."""
        return {
            Providers: Providers("provider", BUILT_IN, group="kernloom.providers"),
            TransformNames: TransformNames(self._transforms()),
            Renderer: Renderer(self.template_folders, self.places.cache / "rendered"),
            Compilers: self.compilers,
        }

    @property
    def template_folders(self) -> list[Path]:
        return self.places.folders("templates")

    def _transforms(self) -> list[str]:
        return [
            cls.transform
            for name in self.stages.names()
            if issubclass(cls := self.stages.get(name, key=""), Transform)
        ]

    def builder(self, experiment: Experiment | None = None) -> Builder:
        build = experiment.build if experiment else None
        return Builder(
            self.places, jobs=build.jobs if build else 0, keep=build.keep if build else False
        )

    def resolve_arch(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The arch section with `native` made concrete for the toolchain in use."""
        arch: Any = data.get("arch")
        if not isinstance(arch, dict) or arch.get("name") != NATIVE:
            return arch  # type: ignore[no-any-return]
        from kernloom.files import canonical_json

        memo = canonical_json([arch, data.get("toolchain")])
        if memo not in self._arches:
            toolchain = convert(Toolchain, data.get("toolchain"), "toolchain")
            try:
                found = {toolchain.family: self.compilers.detect(toolchain)}
            except UnavailableError:
                # Said when the point is planned: the others of a sweep go on.
                found = {}
            self._arches[memo] = resolve_native(arch, found, self.places.cache)
        return self._arches[memo]

    def runner(self, experiment: Experiment) -> Artifact:
        """The runner that this experiment's kernels need."""
        return self._runners.get(
            self._runner, experiment.toolchain, experiment.arch, experiment.target
        )

    def _runner(self, toolchain: Toolchain, arch: Arch, target: Target) -> Artifact:
        found = self.compilers.detect(toolchain)
        return runner_artifact(toolchain, arch, target.variant, found, self.places.share)

    def check_available(self, experiment: Experiment) -> None:
        """Refuse what this machine cannot run, before anything is built."""
        target, arch = experiment.target, experiment.arch
        DEVICES.get(target.device, key="target.device")
        self.compilers.detect(experiment.toolchain)
        if sys.platform not in target.systems:
            raise UnavailableError(
                f"target '{target.name}' runs on {', '.join(target.systems)}, not {sys.platform}"
            )
        missing = missing_features(arch) if target.family == "host" else []
        if missing:
            raise UnavailableError(
                f"arch '{arch.name}' needs {', '.join(missing)}, which this CPU does not have",
                hint="Choose another: arch=native always fits.",
            )
