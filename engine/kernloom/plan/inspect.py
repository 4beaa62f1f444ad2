"""The inspect stage: substitutes sizes in a workload and describes its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from kernloom.base.errors import ConfigError, UnsuitableError, nearest
from kernloom.base.expressions import evaluate, format_size, parse
from kernloom.config.distribution import TRANSFORM as DISTRIBUTE
from kernloom.config.schema import (
    Argument,
    Experiment,
    Kernel,
    OwnOrchestration,
    Scalar,
    Step,
    Target,
    Workload,
)
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.cores import core_choice, is_wrapped, runs_on_cores
from kernloom.plan.costs import for_tasks
from kernloom.plan.schedule import (
    ELEMENT,
    UNBOUND,
    BoundArgument,
    Schedule,
    StepRecord,
    TensorSpec,
)

MAX_EXTENT = 2**40
"""Largest extent of a tensor; catches typing errors before any computation."""


class Inspect(Stage):
    """Workload -> steps (op, shapes, dtypes), flops, bytes, and a schedule without decisions."""

    inputs: ClassVar[Mapping[str, str]] = {"workload": "workload"}
    outputs: ClassVar[Mapping[str, str]] = {
        "steps": "steps",
        "schedule": "schedule",
        "tensors": "tensors",
        "flops": "number",
        "bytes": "number",
    }

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        workload: Workload = inputs["workload"]
        sizes = sizes_of(workload)
        tensors = tensors_of(workload)
        if workload.orchestration:
            schedule = _submitted(workload, workload.orchestration, context.experiment)
        else:
            schedule = _mark_fusable(
                tuple(
                    _record(name, step, workload, sizes, tensors, context.experiment)
                    for name, step in workload.steps.items()
                ),
                workload,
                context.experiment.target,
            )
        return {
            "steps": schedule,
            "schedule": schedule,
            "tensors": tensors,
            "flops": evaluate(workload.cost.flops, sizes, key="workload.cost.flops"),
            "bytes": evaluate(workload.cost.bytes, sizes, key="workload.cost.bytes"),
        }


def sizes_of(workload: Workload) -> dict[str, int]:
    """Every size as a number (sizes may be expressions over others), and bytes per `element`."""
    return workload.derive(_evaluated)


def _evaluated(workload: Workload) -> dict[str, int]:
    known: dict[str, int] = {"element": ELEMENT[workload.dtype]}
    waiting = dict(workload.sizes)
    while waiting:
        ready = [
            name
            for name, value in waiting.items()
            if not isinstance(value, str) or parse(value).names <= known.keys()
        ]
        if not ready:
            raise ConfigError(
                f"these refer to each other: {', '.join(waiting)}", key="workload.sizes"
            )
        for name in ready:
            key = f"workload.sizes.{name}"
            value = evaluate(waiting.pop(name), known, key=key)
            known[name] = _extent(value, key, _least_size(workload, name))
    return known


def _least_size(workload: Workload, name: str) -> int:
    """Zero for a size that the workload declares it for, and one for others."""
    limits = workload.fuzz.sizes.get(name)
    return 1 if limits is None else min(limits.low, 1)


def tensors_of(workload: Workload) -> dict[str, TensorSpec]:
    """Every tensor with a numeric shape."""
    return workload.derive(_shaped)


def _shaped(workload: Workload) -> dict[str, TensorSpec]:
    sizes = sizes_of(workload)
    tensors = {}
    for name, tensor in workload.tensors.items():
        key = f"workload.tensors.{name}.shape"
        shape = tuple(_extent(evaluate(extent, sizes, key=key), key) for extent in tensor.shape)
        tensors[name] = TensorSpec(name, shape, tensor.dtype or workload.dtype)
    return tensors


def accesses_from(workload: Workload) -> tuple[Any, ...]:
    """The sections of a workload that say which tensors are read and written."""
    return workload.steps, workload.kernels, workload.orchestration


def inputs_of(workload: Workload) -> list[str]:
    """Tensors that are read or updated before any step has written them."""
    written: set[str] = set()
    names: list[str] = []
    for name, access in workload.accesses():
        if access != "write" and name not in written and name not in names:
            names.append(name)
        if access != "read":
            written.add(name)
    return names


def check_memory(tensors: Mapping[str, TensorSpec], available: int) -> None:
    """Refuse tensors that do not fit into memory, before any allocation.

    The engine holds the inputs and a float64 golden in addition to the device's copy.
    """
    total = sum(tensor.nbytes for tensor in tensors.values())
    if 4 * total > available:
        largest = max(tensors.values(), key=lambda tensor: tensor.nbytes)
        raise ConfigError(
            f"the tensors need {format_size(total)}, about {format_size(4 * total)} with the "
            f"copies for verifying, but {format_size(available)} of memory are free",
            key="workload.sizes",
            hint=f"The largest is {largest.name} {list(largest.shape)}: make it smaller.",
        )


def _extent(value: Any, key: str, least: int = 1) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{value!r} is not a whole number", key=key)
    if not least <= value <= MAX_EXTENT:
        raise ConfigError(
            f"{value} is not a possible size", key=key, hint=f"Allowed: {least} to {MAX_EXTENT}."
        )
    return value


def _record(
    name: str,
    step: Step,
    workload: Workload,
    sizes: Mapping[str, int],
    tensors: Mapping[str, TensorSpec],
    experiment: Experiment,
) -> StepRecord:
    kernel = _kernel(step.kernel, experiment, distributed=_is_distributed(name, experiment))
    key = f"workload.steps.{name}"
    arguments = tuple(
        _bind(argument, declared, step, workload, sizes, f"{key}.args.{argument}")
        for argument, declared in kernel.arguments.items()
    )
    own_sizes = {arg.name: int(arg.binding) for arg in arguments if arg.kind == "size"}
    for argument in arguments:
        if argument.kind == "tensor":
            declared = kernel.arguments[argument.name]
            tensor = tensors[str(argument.binding)]
            _check_tensor(argument, declared, tensor, own_sizes, kernel, key)
    arguments = tuple(
        replace(argument, elements=tensors[str(argument.binding)].elements)
        if argument.kind == "tensor"
        else argument
        for argument in arguments
    )
    decisions = _undecided(kernel, experiment)
    return StepRecord(
        name=name,
        kernel=kernel,
        dtype=workload.dtype,
        arguments=arguments,
        sizes=own_sizes,
        unfusable="no step comes before it",
        key=f"workload.kernels.{step.kernel}",
        decisions=decisions,
    )


def _is_distributed(step: str, experiment: Experiment) -> bool:
    """Whether the pipeline shares a step out among PEs."""
    return any(
        stage.get("enabled", "on") == "on" and step in (stage.get("steps") or (step,))
        for stage in experiment.pipeline.stages.values()
        if stage.get("use") == DISTRIBUTE
    )


def _kernel(name: str, experiment: Experiment, *, distributed: bool) -> Kernel:
    """A kernel with the tunables and the model of its source for the target."""
    workload, target = experiment.workload, experiment.target
    kernel = workload.kernels[name].derive(Kernel.for_sources, target.sources)
    if workload.dtype not in kernel.dtypes:
        raise ConfigError(
            f"kernel '{kernel.name}' does not do {workload.dtype}",
            key="workload.dtype",
            hint=nearest(workload.dtype, kernel.dtypes),
        )
    return for_tasks(kernel, target.sources, on=distributed)


def _undecided(kernel: Kernel, experiment: Experiment) -> Mapping[str, Mapping[str, Scalar]]:
    """The decisions before any transform."""
    decisions = kernel.derive(_off)
    target = experiment.target
    if runs_on_cores(target) and (found := kernel.source_for(target.sources)):
        matrix, dtype = experiment.catch == "on", experiment.workload.dtype
        core = core_choice(found[1], found[0], experiment.arch, dtype, matrix=matrix)
        decisions = {**decisions, "core": core}
    return decisions


def _submitted(workload: Workload, own: OwnOrchestration, experiment: Experiment) -> Schedule:
    """The kernels of a workload's own orchestration, which binds their arguments itself."""
    if not runs_on_cores(experiment.target):
        raise UnsuitableError(
            f"workload '{workload.name}' submits tasks by its own orchestration, {own.file}, and "
            f"target '{experiment.target.name}' has no PEs that execute tasks",
            key="workload.orchestration",
            hint="Choose an accelerator with a task runtime, such as target=a5.",
        )
    sizes = sizes_of(workload)
    records = []
    for name, submitted in own.kernels.items():
        kernel = _kernel(submitted.kernel, experiment, distributed=False)
        key = f"workload.orchestration.kernels.{name}.sizes"
        own_sizes = {
            size: _extent(evaluate(submitted.sizes.get(size, size), sizes, key=key), key)
            for size, declared in kernel.arguments.items()
            if declared.kind == "size"
        }
        records.append(
            StepRecord(
                name=name,
                kernel=kernel,
                dtype=workload.dtype,
                arguments=tuple(
                    _unbound(argument, declared, workload, own_sizes, key)
                    for argument, declared in kernel.arguments.items()
                ),
                sizes=own_sizes,
                unfusable="its tasks are submitted by the workload's own orchestration",
                key=f"workload.kernels.{submitted.kernel}",
                decisions=_undecided(kernel, experiment),
            )
        )
    return tuple(records)


def _unbound(
    name: str, declared: Argument, workload: Workload, sizes: Mapping[str, int], key: str
) -> BoundArgument:
    """An argument that an orchestration binds when it runs."""
    dtype = declared.dtype or workload.dtype
    if declared.kind == "size":
        return BoundArgument(name, "size", "read", "int64", UNBOUND)
    elements = 0
    if declared.kind == "tensor":
        elements = 1
        for extent in declared.shape:
            elements *= _extent(evaluate(extent, sizes, key=key), key)
    return BoundArgument(name, declared.kind, declared.access, dtype, UNBOUND, elements)


def _off(kernel: Kernel) -> dict[str, dict[str, Scalar]]:
    """Values that apply where no stage decides."""
    return {
        transform: {tunable: spec.off for tunable, spec in group.items()}
        for transform, group in kernel.tunables.items()
    }


def _bind(
    name: str,
    declared: Argument,
    step: Step,
    workload: Workload,
    sizes: Mapping[str, int],
    key: str,
) -> BoundArgument:
    dtype = declared.dtype or workload.dtype
    given: Any = step.args.get(name, name)
    if declared.kind == "tensor":
        return BoundArgument(name, "tensor", declared.access, dtype, str(given))
    if declared.kind == "size":
        value = evaluate(given, sizes, key=key)
        least = min((_least_size(workload, size) for size in sizes), default=1)
        return BoundArgument(name, "size", "read", "int64", _extent(value, key, least))
    if isinstance(given, str):
        if given not in workload.scalars:
            raise ConfigError(
                f"unknown scalar '{given}'", key=key, hint=nearest(given, workload.scalars)
            )
        given = workload.scalars[given]
    return BoundArgument(name, "scalar", "read", dtype, given)


def _check_tensor(
    argument: BoundArgument,
    declared: Argument,
    tensor: TensorSpec,
    sizes: Mapping[str, int],
    kernel: Kernel,
    key: str,
) -> None:
    where = f"{key}.args.{argument.name}"
    wanted = tuple(evaluate(extent, sizes, key=where) for extent in declared.shape)
    if declared.shape and wanted != tensor.shape:
        raise ConfigError(
            f"tensor '{tensor.name}' has shape {list(tensor.shape)}, but kernel '{kernel.name}' "
            f"takes {list(wanted)} ({', '.join(map(str, declared.shape))})",
            key=where,
        )
    if tensor.dtype != argument.dtype:
        raise ConfigError(
            f"tensor '{tensor.name}' is {tensor.dtype}, but kernel '{kernel.name}' takes "
            f"{argument.dtype}",
            key=where,
        )


def _mark_fusable(schedule: Schedule, workload: Workload, target: Target) -> Schedule:
    """The schedule with, in each record, the reason why it cannot be fused to the step before."""
    marked = list(schedule[:1])
    for record in schedule[1:]:
        reason = _why_unfusable(marked[-1], record, schedule, workload, target)
        if not reason and _takes_true(record):
            marked[-1] = replace(marked[-1], takes_epilogue=True)
        marked.append(replace(record, unfusable=reason))
    return tuple(marked)


def _why_unfusable(
    before: StepRecord,
    record: StepRecord,
    schedule: Schedule,
    workload: Workload,
    target: Target,
) -> str:
    """Why `fuse` cannot make `record` the epilogue of `before`; empty if it can."""
    if record.kernel.name not in before.kernel.epilogues:
        return f"kernel '{before.kernel.name}' has no '{record.kernel.name}' among its epilogues"
    middle = handed_over(before, record, schedule, workload)
    if not middle:
        return f"it must read a tensor that step '{before.name}' writes and nothing else uses"
    if _takes_true(before) and before.fusable:
        return f"step '{before.name}' can itself be fused into the step before"
    if _is_plain_file(before.kernel, target):
        return (
            f"kernel '{before.kernel.name}' is a plain file here; only a template takes epilogues"
        )
    scalars = [argument.name for argument in record.arguments if argument.kind == "scalar"]
    if scalars:
        return f"it takes the scalar '{scalars[0]}'"
    outputs = [a for a in record.arguments if a.kind == "tensor" and a.access != "read"]
    if len(outputs) != 1 or outputs[0].access != "write":
        return "an epilogue writes one tensor, and updates none"
    tensors = {a.binding: a.access for a in before.arguments if a.kind == "tensor"}
    if outputs[0].binding in tensors:
        return f"it writes '{outputs[0].binding}', which step '{before.name}' uses"
    for argument in record.arguments:
        if argument.binding != middle and tensors.get(argument.binding, "read") != "read":
            return f"it reads '{argument.binding}', which step '{before.name}' writes as well"
    return ""


def _takes_true(record: StepRecord) -> bool:
    """Whether the step's kernel has a tunable that can fuse it."""
    tunable = record.kernel.tunables.get("fuse", {}).get("into_producer")
    return tunable is not None and any(value is True for value in tunable.values)


def _is_plain_file(kernel: Kernel, target: Target) -> bool:
    found = kernel.source_for(target.sources)
    return found is not None and (not found[1].template or is_wrapped(found[0], target))


def handed_over(
    before: StepRecord, record: StepRecord, schedule: Schedule, workload: Workload
) -> str:
    """The tensor passed from one step to the next and used by no other; '' if there is none."""
    written = {a.binding for a in before.arguments if a.kind == "tensor" and a.access == "write"}
    read = {a.binding for a in record.arguments if a.kind == "tensor" and a.access == "read"}
    for name in written & read - set(workload.golden):
        users = [r for r in schedule for a in r.arguments if a.binding == name]
        if len(users) == 2:
            return str(name)
    return ""
