"""A kernel's space: every combination of its tunables that the constraints allow.

Constraints and cost formulas are evaluated on whole arrays at once. A space too large to hold is
sampled instead, with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernloom.config.schema import Arch, Kernel, Scalar
from kernloom.errors import ConfigError
from kernloom.expressions import evaluate, parse, parse_size
from kernloom.plan.schedule import ELEMENT, StepRecord

MAX_CELLS = 4_000_000
SAMPLES = 200_000


def variables_of(record: StepRecord, arch: Arch) -> dict[str, Any]:
    """What constraints and models may use beside the tunables: sizes and arch data."""
    element = ELEMENT[record.dtype]
    return {
        **record.sizes,
        "registers": arch.registers,
        "vector_bytes": arch.vector_bytes,
        "element": element,
        "lanes_max": max(1, arch.vector_bytes // element),
        "l1": parse_size(arch.caches.l1, key="arch.caches.l1"),
        "l2": parse_size(arch.caches.l2, key="arch.caches.l2"),
        "l3": parse_size(arch.caches.l3, key="arch.caches.l3"),
        "cores": arch.cores,
        "fusable": int(record.fusable),
    }


def tunables_of(kernel: Kernel) -> dict[str, tuple[str, tuple[Scalar, ...]]]:
    """Tunable -> (its transform, its values)."""
    return {
        name: (transform, tunable.values)
        for transform, group in kernel.tunables.items()
        for name, tunable in group.items()
    }


@dataclass(frozen=True)
class Space:
    """Open axes, one per tunable, and a mask over their product (or a sample of it)."""

    names: tuple[str, ...]
    axes: tuple[Any, ...]
    """Arrays that broadcast against each other."""
    mask: Any

    @classmethod
    def of(cls, kernel: Kernel, fixed: Mapping[str, Scalar], known: Mapping[str, Any]) -> Space:
        """The space of a kernel with some tunables fixed."""
        tunables = tunables_of(kernel)
        names = tuple(tunables)
        values = [
            (fixed[name],) if name in fixed else tunables[name][1] for name in names
        ]
        arrays = [np.array(options) for options in values]
        cells = math.prod(len(array) for array in arrays)
        if cells <= MAX_CELLS:
            rank = len(arrays)
            axes = tuple(
                array.reshape([-1 if i == axis else 1 for i in range(rank)])
                for axis, array in enumerate(arrays)
            )
            shape = tuple(len(array) for array in arrays)
        else:
            random = np.random.default_rng(0)
            axes = tuple(array[random.integers(len(array), size=SAMPLES)] for array in arrays)
            shape = (SAMPLES,)
        variables = {**known, **dict(zip(names, axes, strict=True))}
        mask = np.ones(shape, dtype=bool)
        for constraint in kernel.constraints:
            mask &= np.asarray(parse(constraint)(variables), dtype=bool)
        return cls(names, axes, mask)

    def cheapest(self, formula: str, known: Mapping[str, Any]) -> dict[str, Scalar] | None:
        """The allowed point of least cost; of equals, the one with the earlier values."""
        if not self.mask.any():
            return None
        variables = {**known, **dict(zip(self.names, self.axes, strict=True))}
        cost = np.asarray(parse(formula)(variables), dtype=float)
        cost = np.where(self.mask, cost, np.inf)
        index = np.unravel_index(int(np.argmin(cost)), cost.shape)
        return {
            name: np.broadcast_to(axis, cost.shape)[index].item()
            for name, axis in zip(self.names, self.axes, strict=True)
        }


def check_point(
    kernel: Kernel, point: Mapping[str, Scalar], known: Mapping[str, Any], *, key: str
) -> None:
    """A chosen point must lie in the kernel's space; the constraint it breaks is named."""
    for name, (transform, values) in tunables_of(kernel).items():
        value = point[name]
        if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
            allowed = ", ".join(map(str, values))
            raise ConfigError(
                f"{transform}.{name}={value} is not in kernel '{kernel.name}'s space",
                key=key,
                hint=f"Allowed: {allowed}.",
            )
    variables = {**known, **point}
    for constraint in kernel.constraints:
        if not evaluate(constraint, variables):
            used = ", ".join(
                f"{name}={variables[name]}" for name in sorted(parse(constraint).names)
            )
            raise ConfigError(
                f"kernel '{kernel.name}' requires {constraint}",
                key=key,
                hint=f"Here {used}.",
            )
