"""Search space of a kernel's tunables and constraints, and errors for points outside of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate, parse, parse_size
from kernloom.config.schema import Arch, Kernel, Scalar
from kernloom.plan.cores import SRAM, core_variables
from kernloom.plan.schedule import ELEMENT, StepRecord
from kernloom.space.axes import Axis
from kernloom.space.requirements import Requirement
from kernloom.space.space import Space

Tunables: TypeAlias = dict[str, tuple[str, tuple[Scalar, ...]]]


def variables_of(record: StepRecord, arch: Arch) -> dict[str, Any]:
    """Variables of constraints and models besides the tunables: sizes and arch data."""
    element = ELEMENT[record.dtype]
    l1, l2, l3 = _cache_sizes(arch.caches.l1, arch.caches.l2, arch.caches.l3)
    core = record.decisions.get("core", {})
    tasks = {"takes_epilogue": int(record.takes_epilogue)} if core else {}
    return {
        **core_variables(core, arch, record.dtype),
        **tasks,
        **record.sizes,
        "registers": arch.registers,
        "vector_bytes": arch.vector_bytes,
        "l1": l1,
        "l2": l2,
        "l3": l3,
        "cores": arch.cores,
        "element": element,
        "lanes_max": max(1, arch.vector_bytes // element),
        "fusable": int(record.fusable),
    }


@lru_cache(maxsize=64, typed=True)
def _cache_sizes(*texts: int | str) -> tuple[int, ...]:
    names = ("l1", "l2", "l3")
    pairs = zip(names, texts, strict=True)
    return tuple(parse_size(text, key=f"arch.caches.{name}") for name, text in pairs)


def tunables_of(kernel: Kernel) -> Tunables:
    """Tunable -> (transform, values)."""
    return {
        name: (transform, tunable.values)
        for transform, group in kernel.tunables.items()
        for name, tunable in group.items()
    }


def space_of(kernel: Kernel, fixed: Mapping[str, Scalar], known: Mapping[str, Any]) -> Space:
    """The space of a kernel, given its other variables, with some tunables fixed."""
    tunables = tunables_of(kernel)
    axes = tuple(
        Axis((name,), ((fixed[name],) if name in fixed else values,))
        for name, (_, values) in tunables.items()
    )
    return Space(axes, requirements_of(kernel, known))


def requirements_of(kernel: Kernel, known: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """A kernel's constraints; a tunable shadows a size or arch value of the same name."""
    tunables = tunables_of(kernel)
    others = {name: value for name, value in known.items() if name not in tunables}
    place = f"workload.kernels.{kernel.name}.constraints"
    return tuple(
        Requirement(text, others, f"{place}[{number}]")
        for number, text in enumerate(kernel.constraints)
    )


def allowed_value(kernel: Kernel, name: str, value: Any, *, key: str) -> Scalar:
    """The value of the space that equals `value`: 4 for 4.0, but not 1 for true."""
    transform = next(one for one, group in kernel.tunables.items() if name in group)
    tunable = kernel.tunables[transform][name]
    for option in (*tunable.values, tunable.off):
        if option == value and isinstance(option, bool) == isinstance(value, bool):
            return option
    raise ConfigError(
        f"{transform}.{name}={value} is not in the space of kernel '{kernel.name}'",
        key=key,
        hint=f"Allowed: {', '.join(map(str, tunable.values))}.",
    )


def check_point(
    kernel: Kernel, point: Mapping[str, Scalar], known: Mapping[str, Any], *, key: str
) -> None:
    """Refuse a point outside of the kernel's space, naming the violated constraint."""
    for name in tunables_of(kernel):
        allowed_value(kernel, name, point[name], key=key)
    for requirement in requirements_of(kernel, known):
        if not requirement.holds(dict(point)):
            if error := _beyond_sram(kernel, requirement.text, point, known):
                raise error
            raise _broken(kernel, requirement.text, {**known, **point}, key)


def empty_space_error(
    kernel: Kernel, fixed: Mapping[str, Scalar], known: Mapping[str, Any], *, key: str
) -> ConfigError:
    """The error for an empty space: the constraint that alone excludes all, or those that do so
    together."""

    def is_empty(constraints: Sequence[str]) -> bool:
        some = replace(kernel, constraints=tuple(constraints))
        return space_of(some, fixed, known).least("0") is None

    for constraint in kernel.constraints:
        if is_empty([constraint]):
            if error := _beyond_sram(kernel, constraint, fixed, known):
                return error
            return _broken(kernel, constraint, {**known, **fixed}, key)
    together = list(kernel.constraints)
    for constraint in kernel.constraints:
        rest = [one for one in together if one != constraint]
        if is_empty(rest):
            together = rest
    return ConfigError(
        f"kernel '{kernel.name}' has no point that satisfies {' and '.join(together)}",
        key=key,
        hint=_values_of(kernel, together, {**known, **fixed}),
    )


def _beyond_sram(
    kernel: Kernel, constraint: str, fixed: Mapping[str, Scalar], known: Mapping[str, Any]
) -> ConfigError | None:
    """The error for tiles that do not fit into SRAM: a constraint `bytes <= sram`."""
    tree = parse(constraint).tree
    match tree:
        case ast.Compare(left=left, ops=[ast.LtE()], comparators=[ast.Name(id="sram")]):
            needed = ast.unparse(left)
        case _:
            return None
    smallest = space_of(replace(kernel, constraints=()), fixed, known).least(needed, known)
    if smallest is None or "sram" not in known:
        return None
    count, sram = evaluate(needed, {**known, **smallest}), known["sram"]
    chosen = ", ".join(f"{name}={value}" for name, value in fixed.items())
    return ConfigError(
        f"the tiles of kernel '{kernel.name}' need {'' if fixed else 'at least '}{count} bytes of "
        f"SRAM, but a PE has {sram}",
        key=SRAM,
        hint=f"Chosen: {chosen}. Choose smaller ones, or leave them to the model."
        if chosen
        else f"Allowed: {count} or more; smaller sizes of the workload may need less.",
    )


def _broken(kernel: Kernel, constraint: str, variables: Mapping[str, Any], key: str) -> ConfigError:
    hint = _values_of(kernel, [constraint], variables)
    return ConfigError(f"kernel '{kernel.name}' requires {constraint}", key=key, hint=hint)


def _values_of(kernel: Kernel, constraints: Iterable[str], variables: Mapping[str, Any]) -> str:
    """The values of the names in constraints, as a hint; of a free tunable all that it may have."""
    free = {name: values for name, (_, values) in tunables_of(kernel).items()}
    used = []
    for name in sorted(set().union(*(parse(one).names for one in constraints))):
        if name in variables:
            used.append(f"{name}={variables[name]}")
        elif name in free:
            used.append(f"{name}={' or '.join(map(str, free[name]))}")
    return f"Here {', '.join(used)}." if used else ""
