"""Stages that declare artifacts for sources, and the compile stage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernloom.base.digest import DigestCache
from kernloom.build.compile import kernel_artifact
from kernloom.build.toolchains import CXX, DRIVER, Detected, detect, with_driver
from kernloom.config.schema import Arch, Toolchain
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.artifact import Artifact
from kernloom.plan.orchestration import OrchestrationSource
from kernloom.plan.planned import PlannedOrchestration, StepArtifact
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
        made_from = (
            source.name,
            source.files,
            tuple(source.origins.items()),
            source.flags,
            source.language,
        )
        return self._artifacts.by_key(
            (*made_from, toolchain.digest, arch.compiled.digest, variant),
            lambda: self._make(source, toolchain, arch, variant),
        )


class Compilers:
    """Detected toolchains and declared kernel libraries."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._found: dict[tuple[str, str], Detected] = {}
        self.kernel = ArtifactCache(self._kernel)

    def detect(self, toolchain: Toolchain, role: str = DRIVER) -> Detected:
        """`role`: of the tool that is the driver of the toolchain."""
        key = (toolchain.digest, role)
        if key not in self._found:
            self._found[key] = detect(toolchain, self._cache, role=role)
        return self._found[key]

    def _kernel(self, source: Source, toolchain: Toolchain, arch: Arch, variant: str) -> Artifact:
        if source.language == "c":
            return kernel_artifact(source, toolchain, arch, variant, self.detect(toolchain))
        driver = with_driver(toolchain, CXX, f"the orchestration '{source.name}'")
        detected = self.detect(driver, CXX)
        return kernel_artifact(source, driver, arch, variant, detected, role=CXX)


class Orchestrate(Stage):
    """The source of an orchestration -> its library and launch; None if steps are no tasks."""

    phase = "build"
    inputs = {"source": "orchestration_source"}
    outputs = {"orchestration": "orchestration"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        found: OrchestrationSource | None = inputs["source"]
        if found is None:
            return {"orchestration": None}
        experiment = context.experiment
        artifact = context.need(Compilers).kernel(
            found.source, experiment.toolchain, experiment.arch, experiment.target.variant
        )
        return {"orchestration": PlannedOrchestration(artifact, found.launch)}


class Compile(ArtifactStage):
    """Sources -> libraries."""

    def artifact(self, context: Context, item: StepSource) -> Artifact:
        experiment = context.experiment
        return context.need(Compilers).kernel(
            item.source, experiment.toolchain, experiment.arch, experiment.target.variant
        )
