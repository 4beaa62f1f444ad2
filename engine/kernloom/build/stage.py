"""Stages that declare the artifacts that sources will become; the compile stage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernloom.base.remember import make_room
from kernloom.build.artifact import Artifact
from kernloom.build.compile import kernel_artifact
from kernloom.build.toolchains import Detected, detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.render import StepSource
from kernloom.plan.schedule import StepRecord
from kernloom.plan.source import Source


@dataclass(frozen=True)
class StepArtifact:
    """A step and the library that carries it out."""

    step: StepRecord
    artifact: Artifact


class ArtifactStage(Stage):
    """Sources -> artifacts, one for each; SCons makes those of a whole sweep at once, before the
    run phase."""

    phase = "build"
    inputs = {"sources": "sources"}
    outputs = {"artifacts": "artifacts"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        sources: Sequence[StepSource] = inputs["sources"]
        return {
            "artifacts": tuple(
                StepArtifact(item.step, self.artifact(context, item)) for item in sources
            )
        }

    @abstractmethod
    def artifact(self, context: Context, item: StepSource) -> Artifact:
        """What a step's source becomes."""


class Declared:
    """Artifacts by what they are made from, each worked out once per process."""

    def __init__(self, make: Callable[[Source, Toolchain, Arch, str], Artifact]) -> None:
        self._make = make
        self._artifacts: dict[Any, tuple[Artifact, Toolchain, Arch]] = {}
        """With what their ids in the key belong to, so that no id is used again."""

    def __call__(self, source: Source, toolchain: Toolchain, arch: Arch, variant: str) -> Artifact:
        # Equal sections of a sweep are one object, so identity is enough.
        key = (source.name, source.files, id(toolchain), id(arch), variant)
        known = self._artifacts.get(key)
        if known is None:
            make_room(self._artifacts)
            made = self._make(source, toolchain, arch, variant)
            known = self._artifacts[key] = (made, toolchain, arch)
        return known[0]


class Compilers:
    """Detected toolchains and declared libraries of kernels."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._found: dict[int, tuple[Toolchain, Detected]] = {}
        self.kernel = Declared(self._kernel)

    def detect(self, toolchain: Toolchain) -> Detected:
        known = self._found.get(id(toolchain))
        if known is None:
            known = self._found[id(toolchain)] = (toolchain, detect(toolchain, self._cache))
        return known[1]

    def _kernel(self, source: Source, toolchain: Toolchain, arch: Arch, variant: str) -> Artifact:
        return kernel_artifact(source, toolchain, arch, variant, self.detect(toolchain))


class Compile(ArtifactStage):
    """Sources -> libraries."""

    def artifact(self, context: Context, item: StepSource) -> Artifact:
        experiment = context.experiment
        return context.need(Compilers).kernel(
            item.source, experiment.toolchain, experiment.arch, experiment.target.variant
        )
