"""Orchestrations: C++ that submits the tasks of a workload, rendered from its schedule or its own.

Sizes and scalars are values of the launch, so that the same library serves all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.config.distribution import ALL, MAX_DIMENSIONS, TRANSFORM
from kernloom.config.schema import Target, Workload
from kernloom.plan.cpp import cpp_of, identifier, member
from kernloom.plan.inspect import sizes_of, tensors_of
from kernloom.plan.schedule import BoundArgument, Schedule, StepRecord
from kernloom.plan.source import Source
from kernloom.plan.tiling import PLACEMENT, Tiling, tiling_of

ENTRY = "kl_orchestrate"
TEMPLATE = "orchestration/steps.cpp.j2"
HEADERS = (
    "kernloom/core.h",
    "kernloom/orchestration.h",
    "kernloom/orchestration.hpp",
    "kernloom/tiling.hpp",
)
"""The API of orchestrations, among the files of a source."""
FLAGS = ("-I.",)
MAIN = "orchestration.cpp"
LAUNCH_HEADER = "workload.hpp"
"""What an orchestration of a workload's own includes to know its launch."""
CTYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
}
_ACCESSES = {"read": "KL_ACCESS_IN", "write": "KL_ACCESS_WRITE", "update": "KL_ACCESS_INOUT"}
SIZE = "uint64_t"
_TASKS = "kl_tasks"
"""The orchestration in the generated header; no name of a config may begin like this."""


@dataclass(frozen=True)
class LaunchValue:
    """A value of a launch."""

    value: int | float
    dtype: str


@dataclass(frozen=True)
class Launch:
    """The arguments of an orchestration, in the order in which it numbers them."""

    tensors: tuple[str, ...]
    values: tuple[LaunchValue, ...]
    kernels: tuple[str, ...]
    """Names of steps, or those of the workload's own orchestration."""
    placement: str
    """Where the tensors are: shard, owner or replicate."""

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "tensors": list(self.tensors),
            "values": [[one.value, one.dtype] for one in self.values],
            "kernels": list(self.kernels),
            "placement": self.placement,
        }


@dataclass(frozen=True)
class OrchestrationSource:
    """The source of an orchestration, and what it is launched with."""

    source: Source
    launch: Launch


def placement_of(schedule: Schedule) -> str:
    """Where the tensors of tasks are; empty if the steps are no tasks."""
    for record in schedule:
        if found := record.decisions.get(TRANSFORM, {}).get(PLACEMENT):
            return str(found)
    return ""


class _Values:
    """The values of a launch so far."""

    def __init__(self) -> None:
        self.found: list[LaunchValue] = []

    def add(self, value: int | float, dtype: str) -> int:
        self.found.append(LaunchValue(value, dtype))
        return len(self.found) - 1


def rendered_launch(
    schedule: Schedule, workload: Workload, target: Target
) -> tuple[dict[str, Any], Launch]:
    """The variables of the template for these steps, and the launch that belongs to it."""
    used = {str(a.binding) for record in schedule for a in record.arguments if a.kind == "tensor"}
    tensors = tuple(name for name in workload.tensors if name in used)
    values = _Values()
    steps = [_Step(record, tensors, values, target).variables() for record in schedule]
    names = tuple(record.name for record in schedule)
    launch = Launch(tensors, tuple(values.found), names, placement_of(schedule))
    return {"workload": workload.name, "steps": steps}, launch


class _Step:
    """The variables of one step in the template."""

    def __init__(
        self, record: StepRecord, tensors: tuple[str, ...], values: _Values, target: Target
    ) -> None:
        self._record, self._tensors, self._target = record, tensors, target
        self._all_values = values
        self._names: dict[str, str] = {}
        """The kernel's size -> its variable."""
        self._values: list[dict[str, Any]] = []

    def variables(self) -> dict[str, Any]:
        record = self._record
        for argument in record.arguments:
            if argument.kind != "tensor":
                ctype = SIZE if argument.kind == "size" else CTYPES[argument.dtype]
                value: Any = argument.binding
                name = self._value(argument.name, value, argument.dtype, ctype)
                if argument.kind == "size":
                    self._names[argument.name] = name
        found = tiling_of(record, self._target)
        tiling = None if isinstance(found, str) else found
        tensors = [self._tensor(a) for a in record.arguments if a.kind == "tensor"]
        shapes = {tensor["name"]: tensor["shape"] for tensor in tensors}
        return {
            "name": record.name,
            "kernel": record.kernel.name,
            "core": record.decisions["core"]["type"],
            "ctype": CTYPES[record.dtype],
            "about": _about(tiling),
            "tensors": tensors,
            "arguments": [
                self._argument(argument, tiling, shapes.get(argument.name, []))
                for argument in record.arguments
            ],
            "tiling": tiling and self._tiling(tiling),
            "passed_values": self._values,
        }

    def _value(self, name: str, value: Any, dtype: str, ctype: str) -> str:
        variable = identifier(name)
        place = self._all_values.add(value, dtype)
        self._values.append({"variable": variable, "ctype": ctype, "place": place})
        return variable

    def _size(self, text: str | int, name: str) -> str:
        """A size expression in C++; one without a simple form is a value of the launch."""
        written = cpp_of(text, self._names)
        if written is None:
            value = evaluate(text, self._record.sizes)
            written = self._value(name, int(value), "int64", SIZE)
        return written

    def _halo(self, text: str, name: str) -> str:
        value = evaluate(text, self._record.sizes)
        if value < 0:
            raise ConfigError(
                f"the halo '{text}' is {value} here, but it cannot be less than 0",
                key=f"{self._record.key}.distribute.regions",
                hint=f"Write max({text}, 0).",
            )
        return self._size(text, name)

    def _tensor(self, argument: BoundArgument) -> dict[str, Any]:
        declared = self._record.kernel.arguments.get(argument.name)
        shape = declared.shape if declared else ()
        name = identifier(argument.name)
        if not shape or len(shape) > MAX_DIMENSIONS:
            shown = [self._value(f"{name}_elements", argument.elements, "int64", SIZE)]
        else:
            shown = [self._size(text, f"{name}_extent{i}") for i, text in enumerate(shape)]
        return {
            "name": argument.name,
            "variable": name,
            "ctype": CTYPES[argument.dtype],
            "place": self._tensors.index(str(argument.binding)),
            "shape": shown,
        }

    def _argument(
        self, argument: BoundArgument, tiling: Tiling | None, shape: list[str]
    ) -> dict[str, Any]:
        variable = identifier(argument.name)
        if argument.kind != "tensor":
            return {"kind": argument.kind, "variable": variable}
        return {
            "kind": "tensor",
            "variable": variable,
            "access": _ACCESSES[argument.access],
            "parts": tiling and self._parts(argument.name, tiling, shape),
        }

    def _parts(self, argument: str, tiling: Tiling, shape: list[str]) -> list[str] | None:
        parts = tiling.regions.get(argument)
        if parts is None or tiling.spmd:
            return None
        unsplit = tiling.summed.name if tiling.summed and tiling.splits == 1 else ""
        shown = []
        for i, (part, extent) in enumerate(zip(parts, shape, strict=True)):
            axis = identifier(part.axis)
            if part.axis in (ALL, unsplit):
                shown.append(f"{{0, {extent}}}")
            elif part.halo:
                before = self._halo(part.before, f"{argument}_before{i}")
                behind = self._halo(part.behind, f"{argument}_behind{i}")
                shown.append(f"{axis}.with_halo({before}, {behind}, {extent})")
            else:
                shown.append(axis)
        # Whole tensors are shown as such.
        whole = all(text.startswith("{0, ") for text in shown)
        return None if whole else shown

    def _tiling(self, tiling: Tiling) -> dict[str, Any]:
        axes = [*tiling.axes, *([tiling.summed] if tiling.summed else [])]
        written = {
            axis.name: {
                "name": axis.name,
                "variable": identifier(axis.name),
                "size": self._size(axis.size, f"{axis.name}_size"),
                "tile": axis.tile,
            }
            for axis in axes
            if axis != tiling.summed or tiling.splits > 1
        }
        return {
            "axes": [written[axis.name] for axis in tiling.axes],
            "summed": written.get(tiling.summed.name) if tiling.summed else None,
            "group": tiling.group,
            "splits": tiling.splits,
            "spmd": tiling.spmd,
        }


def _about(tiling: Tiling | None) -> str:
    if tiling is None:
        return "a single task"
    text = "in tiles of " + " x ".join(str(axis.tile) for axis in tiling.axes)
    if tiling.splits > 1 and tiling.summed:
        text += f", in {tiling.splits} partial results along {tiling.summed.name}"
    return text


def own_launch(schedule: Schedule, workload: Workload) -> Launch:
    """The launch of a workload's own orchestration: all sizes, scalars, tensors and kernels."""
    sizes = sizes_of(workload)
    values = [
        *(LaunchValue(sizes[name], "int64") for name in workload.sizes),
        *(LaunchValue(float(value), "float64") for value in workload.scalars.values()),
    ]
    kernels = tuple(record.name for record in schedule)
    return Launch(tuple(workload.tensors), tuple(values), kernels, placement_of(schedule))


def launch_header(schedule: Schedule, workload: Workload) -> str:
    """C++ that knows the launch of a workload by the names of its config."""
    names = {name: member(name) for name in workload.sizes}
    members: list[tuple[str, str, str]] = []
    place = 0
    for name in workload.sizes:
        members.append((SIZE, member(name), f"{_TASKS}.value<{SIZE}>({place})"))
        place += 1
    for name in workload.scalars:
        members.append(("double", member(name), f"{_TASKS}.value<double>({place})"))
        place += 1
    for number, (name, spec) in enumerate(tensors_of(workload).items()):
        shape = workload.tensors[name].shape
        shown = [cpp_of(text, names) or str(spec.shape[i]) for i, text in enumerate(shape)]
        if not shape or len(shape) > MAX_DIMENSIONS:
            shown = [str(spec.elements)]
        made = f"{_TASKS}.tensor<{CTYPES[spec.dtype]}>({number}, {{{', '.join(shown)}}})"
        members.append(("kernloom::Tensor", member(name), made))
    for number, record in enumerate(schedule):
        members.append(("uint32_t", member(record.name), str(number)))
    return "\n".join(_header_lines(CTYPES[workload.dtype], members))


def _header_lines(element: str, members: list[tuple[str, str, str]]) -> Iterator[str]:
    yield "// The launch of this workload by the names of its config: sizes, scalars, tensors and"
    yield "// kernels."
    yield "#pragma once"
    yield ""
    yield '#include "kernloom/tiling.hpp"'
    yield ""
    yield "struct Launch {"
    yield f"    using Element = {element};"
    yield ""
    for ctype, name, _ in members:
        yield f"    {ctype} {name};"
    yield ""
    yield f"    explicit Launch(const kernloom::Orchestration &{_TASKS})"
    for number, (_, name, made) in enumerate(members):
        yield f"        {',' if number else ':'} {name}({made})"
    yield "    {"
    yield f"        (void){_TASKS};"
    yield "    }"
    yield "};"
    yield ""
