"""A kernel's space: every combination of its tunables that the constraints allow.

Constraints and cost formulas are evaluated on whole arrays at once. A space too large to hold is
sampled instead, with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate, names_in, parse, parse_size
from kernloom.base.files import canonical_json
from kernloom.base.remember import LIMIT, ById, make_room
from kernloom.config.schema import Arch, Kernel, Scalar
from kernloom.plan.schedule import ELEMENT, StepRecord

MAX_CELLS = 4_000_000
SAMPLES = 200_000


def variables_of(record: StepRecord, arch: Arch) -> dict[str, Any]:
    """What constraints and models may use beside the tunables: sizes and arch data."""
    element = ELEMENT[record.dtype]
    return {
        **record.sizes,
        **_arches.get(_arch_data, arch),
        "element": element,
        "lanes_max": max(1, arch.vector_bytes // element),
        "fusable": int(record.fusable),
    }


def _arch_data(arch: Arch) -> dict[str, int]:
    return {
        "registers": arch.registers,
        "vector_bytes": arch.vector_bytes,
        "l1": parse_size(arch.caches.l1, key="arch.caches.l1"),
        "l2": parse_size(arch.caches.l2, key="arch.caches.l2"),
        "l3": parse_size(arch.caches.l3, key="arch.caches.l3"),
        "cores": arch.cores,
    }


Tunables: TypeAlias = dict[str, tuple[str, tuple[Scalar, ...]]]
_arches: ById[dict[str, int]] = ById()
_tunables: ById[Tunables] = ById()


def tunables_of(kernel: Kernel) -> Tunables:
    """Tunable -> (its transform, its values)."""
    return _tunables.get(_flat, kernel)


def _flat(kernel: Kernel) -> Tunables:
    return {
        name: (transform, tunable.values)
        for transform, group in kernel.tunables.items()
        for name, tunable in group.items()
    }


_texts: ById[str] = ById()
_names: ById[tuple[str, ...]] = ById()


def question(
    kernel: Kernel, decided: Mapping[str, Scalar], known: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Equal for all that a kernel's constraints and model answer alike: of what is known, only
    what they mention counts."""
    names = _names.get(_mentioned, kernel)
    values = tuple(known.get(name) for name in names)
    # As text: 1, 1.0 and true are different choices, but equal.
    return (_texts.get(_asked, kernel), values, str(sorted(decided.items())))


def _mentioned(kernel: Kernel) -> tuple[str, ...]:
    return tuple(sorted(names_in([*kernel.constraints, kernel.model])))


def _asked(kernel: Kernel) -> str:
    return canonical_json([tunables_of(kernel), kernel.constraints, kernel.model])


@dataclass(frozen=True)
class KernelSpace:
    """Open axes, one per tunable, and a mask over their product (or a sample of it)."""

    names: tuple[str, ...]
    axes: tuple[Any, ...]
    """Arrays that broadcast against each other."""
    mask: Any
    values: tuple[tuple[Scalar, ...], ...]
    picked: tuple[Any, ...]
    """For each axis, which of its values stand there."""

    @classmethod
    def of(
        cls, kernel: Kernel, fixed: Mapping[str, Scalar], known: Mapping[str, Any]
    ) -> KernelSpace:
        """The space of a kernel with some tunables fixed."""
        tunables = tunables_of(kernel)
        names = tuple(tunables)
        values = [(fixed[name],) if name in fixed else tunables[name][1] for name in names]
        cells = math.prod(len(options) for options in values)
        if cells <= MAX_CELLS:
            rank = len(values)
            picked = tuple(
                np.arange(len(options)).reshape([-1 if i == axis else 1 for i in range(rank)])
                for axis, options in enumerate(values)
            )
            shape = tuple(len(options) for options in values)
        else:
            random = np.random.default_rng(0)
            picked = tuple(random.integers(len(options), size=SAMPLES) for options in values)
            shape = (SAMPLES,)
        axes = tuple(_array(o)[index] for o, index in zip(values, picked, strict=True))
        variables = {**known, **dict(zip(names, axes, strict=True))}
        mask = np.ones(shape, dtype=bool)
        for i, constraint in enumerate(kernel.constraints):
            key = f"workload.kernels.{kernel.name}.constraints[{i}]"
            mask &= np.asarray(evaluate(constraint, variables, key=key), dtype=bool)
        return cls(names, axes, mask, tuple(values), picked)

    def cheapest(
        self, formula: str, known: Mapping[str, Any], *, key: str = ""
    ) -> dict[str, Scalar] | None:
        """The allowed point of least cost; of equals, the one with the earlier values."""
        allowed = np.flatnonzero(self.mask)
        if not allowed.size:
            return None
        variables = {**known, **dict(zip(self.names, self.axes, strict=True))}
        try:
            cost = np.asarray(evaluate(formula, variables, key=key), dtype=float)
            costs = np.broadcast_to(cost, self.mask.shape).ravel()[allowed]
        except (TypeError, ValueError):
            raise ConfigError(f"'{formula}' does not give a number", key=key) from None
        best = int(np.argmin(np.where(np.isnan(costs), np.inf, costs)))
        cell = np.unravel_index(allowed[best], self.mask.shape)
        return {
            name: options[int(np.broadcast_to(index, self.mask.shape)[cell])]
            for name, options, index in zip(self.names, self.values, self.picked, strict=True)
        }


def _array(options: tuple[Scalar, ...]) -> Any:
    # numpy would turn the numbers among texts into text.
    kinds = {isinstance(option, str) for option in options}
    return np.array(options, dtype=object if len(kinds) > 1 else None)


def allowed_value(kernel: Kernel, name: str, value: Any, *, key: str) -> Scalar:
    """The value of the space that `value` means: 4.0 means 4, but true does not mean 1."""
    transform, values = tunables_of(kernel)[name]
    for option in (*values, kernel.tunables[transform][name].off):
        if option == value and isinstance(option, bool) == isinstance(value, bool):
            return option
    raise ConfigError(
        f"{transform}.{name}={value} is not in the space of kernel '{kernel.name}'",
        key=key,
        hint=f"Allowed: {', '.join(map(str, values))}.",
    )


def check_point(
    kernel: Kernel, point: Mapping[str, Scalar], known: Mapping[str, Any], *, key: str
) -> None:
    """A chosen point must lie in the kernel's space; the constraint it breaks is named."""
    for name in tunables_of(kernel):
        allowed_value(kernel, name, point[name], key=key)
    variables = {**known, **point}
    for constraint in kernel.constraints:
        # As text: 1, 1.0 and true are different choices, but equal.
        asked = (constraint, str([variables.get(name) for name in _sorted_names(constraint)]))
        if asked not in _held:
            if not _holds(constraint, known, point, key):
                raise _broken(kernel, constraint, variables, key)
            make_room(_held, LIMIT)
            _held.add(asked)


_held: set[tuple[str, str]] = set()
"""Constraints with values of which they are true."""


@cache
def _sorted_names(constraint: str) -> tuple[str, ...]:
    return tuple(sorted(parse(constraint).names))


def _holds(
    constraint: str, known: Mapping[str, Any], point: Mapping[str, Scalar], key: str
) -> bool:
    # As arrays of one: what the mask of a space allows must be allowed here, divisions by zero too.
    variables = {**known, **{name: _array((value,)) for name, value in point.items()}}
    return bool(np.all(evaluate(constraint, variables, key=key)))


def nothing_left(
    kernel: Kernel, fixed: Mapping[str, Scalar], known: Mapping[str, Any], *, key: str
) -> ConfigError:
    """Why no point is allowed: the constraint that alone leaves none, or all of them together."""
    for constraint in kernel.constraints:
        alone = replace(kernel, constraints=(constraint,))
        if not KernelSpace.of(alone, fixed, known).mask.any():
            return _broken(kernel, constraint, {**known, **fixed}, key)
    return ConfigError(
        f"kernel '{kernel.name}' has no point that satisfies all of its constraints",
        key=key,
        hint=f"They are: {'; '.join(kernel.constraints)}.",
    )


def _broken(kernel: Kernel, constraint: str, variables: Mapping[str, Any], key: str) -> ConfigError:
    used = [f"{n}={variables[n]}" for n in sorted(parse(constraint).names) if n in variables]
    return ConfigError(
        f"kernel '{kernel.name}' requires {constraint}",
        key=key,
        hint=f"Here {', '.join(used)}." if used else "",
    )
