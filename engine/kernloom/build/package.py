"""The package stage: sources that the device's own driver compiles, with how to launch them.

A package is its files: `kernel.cl`, and `launch.json`, which says for each entry which function it
is, what arguments it takes and how many work-items it is launched with. Those numbers are
expressions over the size arguments and the tunables, so that one package serves all sizes.
"""

from __future__ import annotations

import json
from typing import Any

from kernloom.build.artifact import Artifact, Identity
from kernloom.build.compile import variant_flags
from kernloom.build.stage import ArtifactStage
from kernloom.config.schema import Arch, Target, Toolchain, Work
from kernloom.errors import ConfigError
from kernloom.pipeline.stage import Context
from kernloom.plan.render import StepSource, source_for
from kernloom.plan.schedule import StepRecord
from kernloom.plan.source import ENTRY, Source

LAUNCH = "launch.json"


class Package(ArtifactStage):
    """Sources -> artifacts that are loaded as they are."""

    def artifact(self, context: Context, item: StepSource) -> Artifact:
        experiment = context.experiment
        return package(
            item.step,
            item.source,
            _launched(item.step, experiment.target),
            experiment.toolchain,
            experiment.arch,
            experiment.target.variant,
        )


def package(
    step: StepRecord,
    source: Source,
    launched: tuple[Work, Work | None],
    toolchain: Toolchain,
    arch: Arch,
    variant: str,
) -> Artifact:
    launch = {
        "options": list(_options(toolchain, arch, variant)),
        "entries": {ENTRY: _entry(step, *launched)},
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


def _launched(step: StepRecord, target: Target) -> tuple[Work, Work | None]:
    """The work of the kernel's function, and of the one that finishes it."""
    source, key = source_for(step, target)
    if source.work is None:
        raise ConfigError(
            f"the source of kernel '{step.kernel.name}' does not say how many work-items it is "
            "launched with",
            key=f"{key}.work",
            hint="Write e.g. work: {items: [round_up(n, 64)], group: [64]}.",
        )
    return source.work, source.finish


def _entry(step: StepRecord, work: Work, finish: Work | None) -> dict[str, Any]:
    function = f"kl_{step.kernel.name}"
    entry: dict[str, Any] = {
        "function": function,
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
    if work.scratch is not None:
        entry["scratch"] = {"elements": work.scratch, "dtype": step.dtype}
    if finish:
        entry["finish"] = {
            "function": f"{function}_finish",
            "items": list(finish.items),
            "group": list(finish.group),
        }
    return entry


def _options(toolchain: Toolchain, arch: Arch, variant: str) -> tuple[str, ...]:
    """What the driver's compiler is told."""
    return (
        *toolchain.flags,
        *arch.flags.get(toolchain.family, ()),
        *toolchain.kernel_flags,
        *variant_flags(toolchain, variant),
        *toolchain.extra_flags,
    )
