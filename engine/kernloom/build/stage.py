"""The compile stage: declares the artifacts that the sources will become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


class Compilers:
    """Detected toolchains and declared artifacts, each worked out once per process."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._found: dict[int, tuple[Toolchain, Detected]] = {}
        self._artifacts: dict[Any, tuple[Arch, Artifact]] = {}

    def detect(self, toolchain: Toolchain) -> Detected:
        # Equal sections of a sweep are one object, so identity is enough.
        known = self._found.get(id(toolchain))
        if known is None:
            known = self._found[id(toolchain)] = (toolchain, detect(toolchain, self._cache))
        return known[1]

    def kernel(self, source: Source, toolchain: Toolchain, arch: Arch, variant: str) -> Artifact:
        files = tuple(source.files.items())
        key = (source.name, files, id(toolchain), id(arch), variant)
        known = self._artifacts.get(key)
        if known is None:
            artifact = kernel_artifact(source, toolchain, arch, variant, self.detect(toolchain))
            # Keeping the arch (and in _found the toolchain) keeps its identity from another's use.
            known = self._artifacts[key] = (arch, artifact)
        return known[1]


class Compile(Stage):
    """Sources -> artifacts; SCons makes those of a whole sweep at once, before the run phase."""

    phase = "build"
    inputs = {"sources": "sources"}
    outputs = {"artifacts": "artifacts"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        sources: Sequence[StepSource] = inputs["sources"]
        experiment = context.experiment
        compilers = context.need(Compilers)
        return {
            "artifacts": tuple(
                StepArtifact(
                    item.step,
                    compilers.kernel(
                        item.source,
                        experiment.toolchain,
                        experiment.arch,
                        experiment.target.variant,
                    ),
                )
                for item in sources
            )
        }
