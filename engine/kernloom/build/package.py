"""The package stage: sources that the device's own driver compiles, with how to launch them.

A package is its files: `kernel.cl`, and `launch.json`, which says for each entry which function it
is, what arguments it takes and how many work-items it is launched with. Those numbers are
expressions over the size arguments and the tunables, so that one package serves all sizes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernloom.build.artifact import Artifact, Identity
from kernloom.build.stage import StepArtifact
from kernloom.config.schema import Arch, Target, Toolchain, Work
from kernloom.errors import ConfigError, nearest
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.render import StepSource, source_for
from kernloom.plan.schedule import StepRecord
from kernloom.plan.source import ENTRY, Source

LAUNCH = "launch.json"


class Package(Stage):
    """Sources -> artifacts that are loaded as they are."""

    phase = "build"
    inputs = {"sources": "sources"}
    outputs = {"artifacts": "artifacts"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        sources: Sequence[StepSource] = inputs["sources"]
        experiment = context.experiment
        return {
            "artifacts": tuple(
                StepArtifact(
                    item.step,
                    package(
                        item.step,
                        item.source,
                        _work(item.step, experiment.target),
                        experiment.toolchain,
                        experiment.arch,
                        experiment.target.variant,
                    ),
                )
                for item in sources
            )
        }


def package(
    step: StepRecord,
    source: Source,
    work: Work,
    toolchain: Toolchain,
    arch: Arch,
    variant: str,
) -> Artifact:
    launch = {
        "options": list(_options(toolchain, arch, variant)),
        "entries": {ENTRY: _entry(step, work)},
    }
    return Artifact(
        name=source.name,
        kind="kernel",
        output=source.main,
        main=source.main,
        files={**source.files, LAUNCH: json.dumps(launch, indent=2) + "\n"},
        argv=(),
        tools={},
        identity=Identity(toolchain.name, "", "", ""),
        arch=arch.name,
        variant=variant,
        params=source.params,
        origins=source.origins,
    )


def _work(step: StepRecord, target: Target) -> Work:
    source, key = source_for(step, target)
    if source.work is None:
        raise ConfigError(
            f"the source of kernel '{step.kernel.name}' does not say how many work-items it is "
            "launched with",
            key=f"{key}.work",
            hint="Write e.g. work: {items: [round_up(n, 64)], group: [64]}.",
        )
    return source.work


def _entry(step: StepRecord, work: Work) -> dict[str, Any]:
    return {
        "function": f"kl_{step.kernel.name}",
        "arguments": [
            {"name": argument.name, "kind": argument.kind, "dtype": argument.dtype}
            for argument in step.arguments
        ],
        "tunables": {
            name: value for group in step.decisions.values() for name, value in group.items()
        },
        "items": list(work.items),
        "group": list(work.group),
    }


def _options(toolchain: Toolchain, arch: Arch, variant: str) -> tuple[str, ...]:
    """What the driver's compiler is told."""
    if variant not in toolchain.variants:
        raise ConfigError(
            f"toolchain '{toolchain.name}' cannot build the variant '{variant}'",
            key="target.variant",
            hint=nearest(variant, toolchain.variants),
        )
    return (
        *toolchain.flags,
        *arch.flags.get(toolchain.family, ()),
        *toolchain.kernel_flags,
        *toolchain.variants[variant],
        *toolchain.extra_flags,
    )
