"""Transforms: stages that write their decisions into the schedule, and nothing else.

A transform takes the parameters that its `params` input refers to: step -> tunable -> value. A new
one is a subclass with a name, registered by entry point under `kernloom.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kernloom.base.errors import PipelineError, nearest
from kernloom.config.schema import Scalar
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.inspect import handed_over
from kernloom.plan.schedule import BoundArgument, Epilogue, Schedule, StepRecord
from kernloom.plan.space import allowed_value


@dataclass(frozen=True)
class TransformOptions:
    """Options of every transform."""

    steps: tuple[str, ...] = ()
    """Steps to transform; empty means all."""


class Transform(Stage):
    """Schedule and parameters -> schedule."""

    transform: ClassVar[str] = ""
    """Its name in a kernel's tunables and in the schedule."""
    inputs: ClassVar[Mapping[str, str]] = {"schedule": "schedule", "params": "params"}
    outputs: ClassVar[Mapping[str, str]] = {"schedule": "schedule"}
    Options = TransformOptions

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        schedule: Schedule = inputs["schedule"]
        params: Mapping[str, Mapping[str, Scalar]] = inputs["params"]
        names = self.check_steps(schedule)
        for step, values in params.items():
            if type(values) is not dict and not isinstance(values, Mapping):
                raise PipelineError(
                    f"'{step}' should be a step with its tunables, not {values!r}",
                    key=f"pipeline.stages.{self.name}.in.params",
                )
        decided = tuple(
            record.decided(self.transform, self._checked(record, params[record.name]))
            if record.name in params and record.name in (self.options.steps or names)
            else record
            for record in schedule
        )
        return {"schedule": self.apply(decided, context)}

    def check_steps(self, schedule: Schedule) -> set[str]:
        """The names of the steps; refuse an option that names another."""
        names = {record.name for record in schedule}
        for step in self.options.steps:
            if step not in names:
                raise PipelineError(
                    f"unknown step '{step}'",
                    key=f"pipeline.stages.{self.name}.steps",
                    hint=nearest(step, names),
                )
        return names

    def _checked(self, record: StepRecord, values: Mapping[str, Any]) -> Mapping[str, Scalar]:
        """The values, checked against the space of the step's kernel: templates write them into the
        source, where other text would be code."""
        tunables = record.kernel.tunables.get(self.transform, {})
        for name, value in values.items():
            tunable = tunables.get(name)
            if tunable is None:
                raise PipelineError(
                    f"step '{record.name}' has no tunable '{name}' for '{self.transform}'",
                    key=f"pipeline.stages.{self.name}.in.params",
                    hint=nearest(name, tunables),
                )
            if not any(value is option for option in tunable.values):
                key = f"pipeline.stages.{self.name}.in.params.{record.name}"
                values = {**values, name: allowed_value(record.kernel, name, value, key=key)}
        return values

    def apply(self, schedule: Schedule, context: Context) -> Schedule:
        """Apply the decisions to the schedule itself; most transforms only inform the template."""
        return schedule


class Tile(Transform):
    """Loop blocking and register tiles."""

    transform = "tile"


class Pack(Transform):
    """Copies of operands in the order in which they are read."""

    transform = "pack"


class Unroll(Transform):
    """Unrolled loop iterations."""

    transform = "unroll"


class Vectorize(Transform):
    """Lanes per vector."""

    transform = "vectorize"


class Parallelize(Transform):
    """Threads and the distribution of work among them."""

    transform = "parallelize"


class Fuse(Transform):
    """Executes a step at the end of the step before it."""

    transform = "fuse"

    def apply(self, schedule: Schedule, context: Context) -> Schedule:
        fused: list[StepRecord] = []
        for record in schedule:
            if record.decisions.get("fuse", {}).get("into_producer") is not True:
                fused.append(record)
            elif not record.fusable:
                raise PipelineError(
                    f"step '{record.name}' cannot be fused into the one before it: "
                    f"{record.unfusable}",
                    key=f"pipeline.stages.{self.name}",
                    hint=f"Set select.fixed.fuse.{record.name}.into_producer=false.",
                )
            elif fused[-1].epilogue:
                raise PipelineError(
                    f"step '{fused[-1].name}' cannot take '{record.name}' as a second epilogue",
                    key=f"pipeline.stages.{self.name}",
                    hint=f"Set select.fixed.fuse.{record.name}.into_producer=false.",
                )
            else:
                fused[-1] = _fused(fused[-1], record, schedule, context)
        return tuple(fused)


def _fused(
    before: StepRecord, record: StepRecord, schedule: Schedule, context: Context
) -> StepRecord:
    """`before` extended by the output and the additional arguments of `record`."""
    middle = handed_over(before, record, schedule, context.experiment.workload)
    outputs = [a for a in record.arguments if a.access == "write"]
    own = [a.name for a in before.arguments]
    added: list[BoundArgument] = []
    for argument in record.arguments:
        is_middle = argument.binding == middle and argument.kind == "tensor"
        if argument.kind == "tensor" and argument.access == "read" and not is_middle:
            name = argument.name if argument.name not in own else f"{record.name}_{argument.name}"
            added.append(replace(argument, name=name))
    arguments = [
        replace(argument, binding=outputs[0].binding)
        if argument.kind == "tensor" and argument.binding == middle
        else argument
        for argument in before.arguments
    ]
    position = next(i for i, a in enumerate(arguments) if a.access == "write")
    arguments[position:position] = added
    epilogue = Epilogue(record.kernel.name, tuple(argument.name for argument in added))
    decisions = {**before.decisions, "fuse": {**record.decisions["fuse"]}}
    return replace(before, arguments=tuple(arguments), epilogue=epilogue, decisions=decisions)


TRANSFORMS: Mapping[str, type[Transform]] = {
    cls.transform: cls for cls in (Tile, Pack, Unroll, Vectorize, Parallelize, Fuse)
}
"""The shipped transforms by stage type."""
