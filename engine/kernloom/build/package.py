"""The package stage: sources that the device's own driver compiles, with their launch data.

A package is its files: `kernel.cl`, and `launch.json` with the function, arguments and work-items
of each entry. The numbers are expressions over the size arguments and the tunables, so that one
package serves all sizes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.build.compile import kernel_flags
from kernloom.build.driver_inputs import check_options, check_sources
from kernloom.build.stage import ArtifactStage
from kernloom.config.schema import Arch, Target, Toolchain, Work
from kernloom.pipeline.stage import Context
from kernloom.plan.artifact import Artifact, Identity
from kernloom.plan.clsource import FINISH
from kernloom.plan.render import StepSource, source_for
from kernloom.plan.schedule import StepRecord
from kernloom.plan.source import ENTRY, Launched, Source, Texts

LAUNCH = "launch.json"


class Package(ArtifactStage):
    """Sources -> artifacts that are loaded without compilation."""

    def artifact(self, context: Context, item: StepSource) -> Artifact:
        experiment = context.experiment
        launched = _launched(item, experiment.target)
        source, key = source_for(item.step, experiment.target)
        check_sources(
            item.source.files,
            item.source.main,
            launched[0].include,
            key=f"{key}.{'template' if source.template else 'file'}",
        )
        return package(
            item.step,
            item.source,
            launched,
            experiment.toolchain,
            experiment.arch,
            experiment.target.variant,
        )


def package(
    step: StepRecord,
    source: Source,
    launched: tuple[Launched, Work, Work | None],
    toolchain: Toolchain,
    arch: Arch,
    variant: str,
) -> Artifact:
    groups = _options(toolchain, arch, variant)
    check_options(groups)
    launch: dict[str, Any] = {
        "options": [option for options in groups.values() for option in options],
        "entries": {ENTRY: _entry(step, *launched)},
    }
    if launched[0].include:
        launch["include"] = launched[0].include
    return Artifact(
        name=source.name,
        kind="kernel",
        output=source.main,
        main=source.main,
        files=Texts({**source.files, LAUNCH: json.dumps(launch, indent=2) + "\n"}),
        argv=(),
        tools={},
        identity=Identity(toolchain.name, "", "", ""),
        arch=arch.name,
        variant=variant,
        params=source.params,
        origins=source.origins,
    )


def _launched(item: StepSource, target: Target) -> tuple[Launched, Work, Work | None]:
    """The kernel's function, its work sizes, and those of its finishing function."""
    source, key = source_for(item.step, target)
    if source.work is None or item.source.launched is None:
        raise ConfigError(
            f"the source of kernel '{item.step.kernel.name}' does not say how many work-items it "
            "is launched with",
            key=f"{key}.work",
            hint="Write e.g. work: {items: [round_up(n, 64)], group: [64]}.",
        )
    return item.source.launched, source.work, source.finish


def _entry(step: StepRecord, launched: Launched, work: Work, finish: Work | None) -> dict[str, Any]:
    function = launched.function
    entry: dict[str, Any] = {
        "function": function,
        "arguments": [
            {"name": argument.name, "kind": argument.kind, "dtype": dtype}
            for argument, dtype in zip(step.arguments, launched.dtypes, strict=True)
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
            "function": f"{function}{FINISH}",
            "items": list(finish.items),
            "group": list(finish.group),
        }
    return entry


def _options(toolchain: Toolchain, arch: Arch, variant: str) -> dict[str, Sequence[str]]:
    """Options for the driver's compiler, grouped by config key."""
    family = toolchain.family
    return kernel_flags(toolchain, replace(arch, flags={family: (), **arch.flags}), variant)
