"""The space of a study: the tunables of a workload's steps, and the config keys that it varies."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.base.expressions import parse
from kernloom.base.files import canonical_json
from kernloom.config.overrides import Override
from kernloom.config.schema import Arch, Kernel, Scalar
from kernloom.plan.schedule import Schedule, StepRecord
from kernloom.plan.space import (
    allowed_value,
    empty_space_error,
    requirements_of,
    tunables_of,
    variables_of,
)
from kernloom.space.axes import Axis, Row
from kernloom.space.clauses import Clause
from kernloom.space.requirements import Requirement
from kernloom.space.space import Constraint, Space

Point = Row
Choice = tuple[Any, ...]
"""A value of each varied config key."""
FIXED = "select.fixed"
MAX_CHOICES = 256
"""Largest number of combinations of varied config keys."""


@dataclass(frozen=True)
class StudyAxis:
    """One tunable of one step, and its name in the points of the study."""

    key: str
    step: str
    transform: str
    name: str
    values: tuple[Scalar, ...]

    @property
    def override(self) -> str:
        """The config key that sets it."""
        return f"{FIXED}.{self.transform}.{self.step}.{self.name}"


@dataclass(frozen=True)
class ChoiceRequirement:
    """A constraint whose known values (registers, caches, ...) depend on varied config keys."""

    keys: tuple[str, ...]
    by_choice: Mapping[str, Requirement]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.keys).union(*(one.needs for one in self.by_choice.values()))

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return ()

    def holds(self, row: Row) -> bool:
        return self.by_choice[_choice_text([row[key] for key in self.keys])].holds(row)

    def mask(self, values: Mapping[str, Any]) -> None:
        return None

    def split(self) -> tuple[Constraint, ...]:
        return (self,)


@dataclass(frozen=True)
class StudySpace:
    """What a study searches."""

    tunables: tuple[StudyAxis, ...]
    varied: tuple[Override, ...]
    """Config keys with several values, such as the toolchain."""
    constraints: tuple[Constraint, ...]

    @cached_property
    def space(self) -> Space:
        axes = [
            *(Axis((one.key,), (tuple(one.values),)) for one in self.varied),
            *(Axis((one.key,), (one.values,)) for one in self.tunables),
        ]
        return Space(tuple(axes), self.constraints)

    def overrides(self, point: Point) -> list[Override]:
        """The overrides of one point, each an axis with one value, so that trials show them."""
        found = [Override.axis(one.key, [point[one.key]], group=one.group) for one in self.varied]
        return found + [Override.axis(one.override, [point[one.key]]) for one in self.tunables]

    def fixed(self, point: Point) -> dict[str, dict[str, dict[str, Scalar]]]:
        """Transform -> step -> tunable -> value, as in a parameter file."""
        found: dict[str, dict[str, dict[str, Scalar]]] = {}
        for one in self.tunables:
            found.setdefault(one.transform, {}).setdefault(one.step, {})[one.name] = point[one.key]
        return found

    def point_of(
        self, params: Mapping[str, Any], choice: Mapping[str, Any], *, given: Mapping[str, Any]
    ) -> Point | None:
        """The point with these parameters (of a trial) and varied keys; None if it is not in the
        space. `given` are the swept keys of the trial: the parameters of a step that is fused into
        another one are known by them only."""
        point: Point = {}
        for one in self.varied:
            if one.key not in choice:
                return None
            point[one.key] = choice[one.key]
        for axis in self.tunables:
            value = params.get(axis.transform, {}).get(axis.step, {}).get(axis.name)
            if value is None:
                value = given.get(axis.override)
            if value is None and len(axis.values) == 1:
                value = axis.values[0]
            if value not in axis.values:
                return None
            point[axis.key] = axis.values[axis.values.index(value)]
        return point if self.space.contains(point) else None


def study_space(
    bases: Mapping[str, tuple[Schedule, Arch]],
    varied: Sequence[Override],
    fixed: Mapping[str, Mapping[str, Sequence[Scalar]]],
    steps: Iterable[str],
    applied: Container[str],
) -> StudySpace:
    """The space over the steps of a workload.

    `bases`: for every choice of the varied keys, as text, the schedule and the arch. `fixed`: step
    -> tunable -> the values that it may have; the others have those of their kernel. `applied`: the
    transforms of the pipeline; tunables of others are off.
    """
    first, _ = next(iter(bases.values()))
    _check_alike(bases, varied)
    wanted = _wanted(first, steps)
    several = sum(bool(record.kernel.tunables) for record in wanted) > 1
    axes: list[StudyAxis] = []
    constraints: list[Constraint] = []
    for record in wanted:
        names = {
            name: f"{record.name}_{name}" if several else name
            for name in tunables_of(record.kernel)
        }
        known = {
            text: variables_of(schedule[first.index(record)], arch)
            for text, (schedule, arch) in bases.items()
        }
        own = _axes(record, names, fixed.get(record.name, {}), list(known.values()), applied)
        conditions = _constraints(record.kernel, names, known, tuple(o.key for o in varied))
        if _is_empty(own, conditions):
            raise _empty(record, fixed.get(record.name, {}), next(iter(known.values())))
        axes += own
        constraints += conditions
    if not axes:
        raise UsageError(
            "there is nothing to tune: no kernel of this workload has tunables on this target",
            hint="" if varied else "A kernel's config declares them under `tunables`.",
        )
    return StudySpace(tuple(axes), tuple(varied), tuple(constraints))


def choices_of(varied: Sequence[Override]) -> Iterator[tuple[str, Choice]]:
    """Every combination of the varied keys, with its text."""
    combinations = itertools.product(*(one.values for one in varied))
    for choice in itertools.islice(combinations, MAX_CHOICES + 1):
        yield _choice_text(choice), choice


def _choice_text(choice: Iterable[Any]) -> str:
    return canonical_json(list(choice))


def _wanted(schedule: Schedule, steps: Iterable[str]) -> list[StepRecord]:
    asked = list(steps)
    names = [record.name for record in schedule]
    for name in asked:
        if name not in names:
            raise ConfigError(
                f"unknown step '{name}'", key="search.steps", hint=nearest(name, names)
            )
    return [record for record in schedule if not asked or record.name in asked]


def _check_alike(bases: Mapping[str, tuple[Schedule, Arch]], varied: Sequence[Override]) -> None:
    """Refuse varied keys that change the tunables themselves."""
    kinds = {
        canonical_json([[record.name, tunables_of(record.kernel)] for record in schedule])
        for schedule, _ in bases.values()
    }
    if len(kinds) > 1:
        keys = ", ".join(one.key for one in varied)
        raise UsageError(
            f"the tunables differ among the values of {keys}, so they are different searches",
            hint="Tune each on its own.",
        )


def _axes(
    record: StepRecord,
    names: Mapping[str, str],
    fixed: Mapping[str, Sequence[Scalar]],
    known: Sequence[Mapping[str, Any]],
    applied: Container[str],
) -> list[StudyAxis]:
    found = []
    for name, (transform, declared) in tunables_of(record.kernel).items():
        key = f"{FIXED}.{transform}.{name}"
        values = [allowed_value(record.kernel, name, one, key=key) for one in fixed.get(name, ())]
        if not values and transform not in applied:
            values = [record.decisions[transform][name]]
        values = values or [one for one in declared if _possible(record.kernel, name, one, known)]
        found.append(
            StudyAxis(
                names[name], record.name, transform, name, tuple(_in_order(values or declared))
            )
        )
    return found


def _possible(kernel: Kernel, name: str, value: Scalar, known: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the constraints on this tunable alone permit a value, for any of the choices."""
    for one in known:
        alone = (part for whole in requirements_of(kernel, one) for part in whole.split())
        if all(part.holds({name: value}) for part in alone if part.needs == {name}):
            return True
    return False


def _in_order(values: Sequence[Scalar]) -> list[Scalar]:
    """Numbers by size: strategies take neighbours in the list for similar values."""
    distinct = list(dict.fromkeys(values))
    if all(isinstance(value, (int, float)) for value in distinct):
        return sorted(distinct)
    return distinct


def _constraints(
    kernel: Kernel,
    names: Mapping[str, str],
    known: Mapping[str, Mapping[str, Any]],
    varied: tuple[str, ...],
) -> list[Constraint]:
    by_choice = {
        text: [_renamed(one, names) for one in requirements_of(kernel, values)]
        for text, values in known.items()
    }
    lists = list(by_choice.values())
    found: list[Constraint] = []
    for number, one in enumerate(lists[0]):
        if all(other[number].known == one.known for other in lists):
            found.append(one)
        else:
            found.append(
                ChoiceRequirement(varied, {text: own[number] for text, own in by_choice.items()})
            )
    return found


def _renamed(requirement: Requirement, names: Mapping[str, str]) -> Requirement:
    """A constraint over the keys of the study instead of the names of the kernel."""
    used = parse(requirement.text).names & names.keys()
    known = {name: requirement.known[name] for name in requirement.known}
    if all(names[name] == name for name in used):
        return replace(requirement, known=known)
    tree = _Renaming(names).visit(ast.parse(requirement.text.strip(), mode="eval"))
    clash = set(names.values()) & known.keys()
    known = {name: value for name, value in known.items() if name not in clash}
    return Requirement(ast.unparse(tree), known, requirement.place)


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _is_empty(axes: Sequence[StudyAxis], constraints: Sequence[Constraint]) -> bool:
    if not axes or any(isinstance(one, ChoiceRequirement) for one in constraints):
        return False  # the base plan of each choice has found a point
    space = Space(tuple(Axis((one.key,), (one.values,)) for one in axes), tuple(constraints))
    return next(iter(space.sample(1)), None) is None


def _empty(
    record: StepRecord, fixed: Mapping[str, Sequence[Scalar]], known: Mapping[str, Any]
) -> ConfigError:
    single = {name: values[0] for name, values in fixed.items() if len(values) == 1}
    tunables = {
        transform: {
            name: replace(one, values=tuple(fixed.get(name, one.values)))
            for name, one in group.items()
        }
        for transform, group in record.kernel.tunables.items()
    }
    kernel = replace(record.kernel, tunables=tunables)
    error = empty_space_error(kernel, single, known, key=f"{record.key}.constraints")
    error.message = f"the space of step '{record.name}' is empty: {error.message}"
    return error
