"""The transform `distribute`: output tiles of steps as tasks for all PEs of an accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kernloom.base.errors import PipelineError
from kernloom.config.distribution import TRANSFORM
from kernloom.pipeline.stage import Context
from kernloom.plan.cores import runs_on_cores
from kernloom.plan.schedule import Schedule, StepRecord
from kernloom.plan.tiling import PLACEMENT, SINGLE, partial_results, report_of
from kernloom.plan.transforms import Transform, TransformOptions


@dataclass(frozen=True)
class DistributeOptions(TransformOptions):
    """Whether steps become tasks, and where the tensors of tasks are."""

    enabled: Literal["on", "off"] = "on"
    placement: Literal["shard", "owner", "replicate"] = "shard"
    """`shard`: in equal parts on all PEs; `owner`: on the first PE; `replicate`: a copy of every
    tensor that is only read on each PE, the others in parts."""


class Distribute(Transform):
    """Shares the output tiles of steps out among all PEs, as tasks of an orchestration."""

    transform: ClassVar[str] = TRANSFORM
    outputs: ClassVar[Mapping[str, str]] = {"schedule": "schedule", "distributed": "distributed"}
    Options = DistributeOptions

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        target, workload = context.experiment.target, context.experiment.workload
        off = self.options.enabled == "off" and not workload.orchestration
        if off or not runs_on_cores(target):
            reason = "distribute=off" if off else f"target '{target.name}' has no PEs"
            names = self.check_steps(inputs["schedule"])
            return {
                "schedule": inputs["schedule"],
                "distributed": {name: {"because": reason} for name in sorted(names)},
            }
        schedule: Schedule = super().run(context, inputs)["schedule"]
        if workload.orchestration:
            told = {"because": f"submitted by {workload.orchestration.file}"}
            return {
                "schedule": tuple(self._placed(record) for record in schedule),
                "distributed": {record.name: told for record in schedule},
            }
        chosen = self.options.steps or tuple(record.name for record in schedule)
        schedule = tuple(
            self._placed(record)
            if record.name in chosen
            else self._placed(record).decided(
                TRANSFORM, {SINGLE: "the step is not among the `steps` of the stage"}
            )
            for record in schedule
        )
        for record in schedule:
            self._check(record)
        reports = {record.name: report_of(record, target) for record in schedule}
        return {"schedule": schedule, "distributed": reports}

    def _placed(self, record: StepRecord) -> StepRecord:
        return record.decided(TRANSFORM, {PLACEMENT: self.options.placement})

    def _check(self, record: StepRecord) -> None:
        if record.epilogue and partial_results(record):
            raise PipelineError(
                f"step '{record.name}' has partial results (distribute.splits), so "
                f"'{record.epilogue.kernel}' cannot be done at its end",
                key=f"pipeline.stages.{self.name}",
                hint="Set distribute.splits=1, or fuse.into_producer=false for the step after it.",
            )
