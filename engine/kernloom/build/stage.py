"""Stages that declare artifacts for sources, and the compile stage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernloom.base.digest import DigestCache
from kernloom.build.compile import kernel_artifact
from kernloom.build.toolchains import Detected, detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.artifact import Artifact
from kernloom.plan.planned import StepArtifact
from kernloom.plan.render import StepSource
from kernloom.plan.source import Source

MAX_CACHED = 500
"""Number of declared artifacts kept: they hold whole texts."""


class ArtifactStage(Stage):
    """Sources -> artifacts, one for each; SCons makes those of a whole sweep together, before the
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
        """The artifact of a step's source."""


class ArtifactCache:
    """Cache of declared artifacts, keyed by their inputs."""

    def __init__(self, make: Callable[[Source, Toolchain, Arch, str], Artifact]) -> None:
        self._make = make
        self._artifacts = DigestCache(MAX_CACHED)

    def __call__(self, source: Source, toolchain: Toolchain, arch: Arch, variant: str) -> Artifact:
        made_from = (source.name, source.files, tuple(source.origins.items()), source.flags)
        return self._artifacts.by_key(
            (*made_from, toolchain.digest, arch.compiled.digest, variant),
            lambda: self._make(source, toolchain, arch, variant),
        )


class Compilers:
    """Detected toolchains and declared kernel libraries."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._found: dict[str, Detected] = {}
        self.kernel = ArtifactCache(self._kernel)

    def detect(self, toolchain: Toolchain) -> Detected:
        if toolchain.digest not in self._found:
            self._found[toolchain.digest] = detect(toolchain, self._cache)
        return self._found[toolchain.digest]

    def _kernel(self, source: Source, toolchain: Toolchain, arch: Arch, variant: str) -> Artifact:
        return kernel_artifact(source, toolchain, arch, variant, self.detect(toolchain))


class Compile(ArtifactStage):
    """Sources -> libraries."""

    def artifact(self, context: Context, item: StepSource) -> Artifact:
        experiment = context.experiment
        return context.need(Compilers).kernel(
            item.source, experiment.toolchain, experiment.arch, experiment.target.variant
        )
