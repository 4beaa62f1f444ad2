"""Schedule: plain data, one record per step, with the decisions of each transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernloom.config.schema import Kernel, Scalar

ELEMENT = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1}
"""Bytes per element."""
CTYPE = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "long",
    "uint8": "unsigned char",
}


UNBOUND = ""
"""Binding of an argument that an orchestration binds when it runs."""


@dataclass(frozen=True)
class BoundArgument:
    """One argument of a call: its name in the kernel, and its binding."""

    name: str
    kind: str
    access: str
    dtype: str
    binding: str | int | float
    """Name of a tensor, or the value of a size or scalar."""
    elements: int = 0
    """Number of elements of a tensor."""

    @property
    def ctype(self) -> str:
        return "long" if self.kind == "size" else CTYPE[self.dtype]


@dataclass(frozen=True)
class Epilogue:
    """A kernel fused to the end of another: its name and its additional arguments."""

    kernel: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class StepRecord:
    """One kernel call with all decisions so far."""

    name: str
    kernel: Kernel
    dtype: str
    arguments: tuple[BoundArgument, ...]
    sizes: Mapping[str, int]
    """The kernel's size arguments with their values."""
    unfusable: str
    """The reason why it cannot be an epilogue of the step before; empty if it can."""
    key: str
    """Config key of its kernel: `workload.kernels.NAME`."""
    decisions: Mapping[str, Mapping[str, Scalar]]
    """Transform -> tunable -> value; `off` values where no stage has decided."""
    epilogue: Epilogue | None = None
    takes_epilogue: bool = False
    """Whether the step after it may be fused into it."""

    @property
    def fusable(self) -> bool:
        return not self.unfusable

    def decided(self, transform: str, values: Mapping[str, Scalar]) -> StepRecord:
        """The record with the decisions of `transform` added."""
        group = {**self.decisions.get(transform, {}), **values}
        return StepRecord(
            self.name,
            self.kernel,
            self.dtype,
            self.arguments,
            self.sizes,
            self.unfusable,
            self.key,
            {**self.decisions, transform: group},
            self.epilogue,
            self.takes_epilogue,
        )


Schedule = tuple[StepRecord, ...]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a workload with a numeric shape."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        return self.elements * ELEMENT[self.dtype]


def describe(schedule: Schedule) -> list[dict[str, Any]]:
    """The schedule as JSON-ready data."""
    return [
        {
            "step": record.name,
            "kernel": record.kernel.name,
            "dtype": record.dtype,
            "sizes": dict(record.sizes),
            "arguments": {arg.name: arg.binding for arg in record.arguments},
            "decisions": {name: dict(group) for name, group in record.decisions.items()},
            "epilogue": record.epilogue.kernel if record.epilogue else None,
        }
        for record in schedule
    ]
