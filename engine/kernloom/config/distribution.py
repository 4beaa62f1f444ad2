"""Parts of tensors that the output tiles of a core kernel touch, along the axes of the tiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from kernloom.base.errors import ConfigError, nearest
from kernloom.config.schema import Argument, Distribute, Tunable

ALL = "all"
"""A whole dimension."""
MAX_DIMENSIONS = 4
"""Dimensions of a region: KL_MAX_DIMENSIONS of kernloom/orchestration.h."""
TRANSFORM = "distribute"
GROUP = "group"
SPLITS = "splits"
SPMD = "spmd"
_PART = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:~([^:]+)(?::([^:]+))?)?", re.ASCII)
CheckNames = Callable[[Iterable[int | str], Collection[str], str], None]


@dataclass(frozen=True)
class Part:
    """A part of one dimension: the range of an axis, with a halo before and behind it."""

    axis: str
    before: str = "0"
    """Expressions over sizes."""
    behind: str = "0"

    @property
    def halo(self) -> bool:
        return (self.before, self.behind) != ("0", "0")


def parse_part(text: str, key: str = "") -> Part:
    """A part from `rows`, `rows~1` or `rows~0:2`."""
    match = _PART.fullmatch(text)
    if not match:
        raise ConfigError(
            f"'{text}' is no part of a dimension",
            key=key,
            hint="Write an axis or `all`; with a halo AXIS~BOTH or AXIS~BEFORE:BEHIND.",
        )
    axis, before, behind = match.groups()
    if axis == ALL and before is not None:
        raise ConfigError("`all` has no halo", key=key)
    before = (before or "0").strip()
    return Part(axis, before, (behind or before).strip())


def check_distribute(
    given: Distribute,
    arguments: Mapping[str, Argument],
    tunables: Mapping[str, Mapping[str, Tunable]],
    known: Collection[str],
    check_names: CheckNames,
    key: str,
) -> None:
    """Refuse axes and regions that do not fit the kernel. `known`: names that expressions over
    tunables may use."""
    if not given.axes:
        raise ConfigError("has no axis of output tiles", key=f"{key}.axes")
    if len(given.sum) > 1:
        raise ConfigError("only one axis can be split", key=f"{key}.sum")
    sizes = {name for name, argument in arguments.items() if argument.kind == "size"}
    axes = {**given.axes, **given.sum}
    for section, group in (("axes", given.axes), ("sum", given.sum)):
        for name, axis in group.items():
            where = f"{key}.{section}.{name}"
            _check_axis_name(name, arguments, where)
            check_names([axis.size], sizes, f"{where}.size")
            check_names([axis.tile], known, f"{where}.tile")
    if given.axes.keys() & given.sum.keys():
        raise ConfigError("an axis is either of the output or of the sum", key=f"{key}.sum")
    tensors = {name: a for name, a in arguments.items() if a.kind == "tensor"}
    for name, parts in given.regions.items():
        where = f"{key}.regions.{name}"
        if name not in tensors:
            raise ConfigError(
                f"the kernel has no tensor argument '{name}'",
                key=f"{key}.regions",
                hint=nearest(name, tensors),
            )
        _check_region(parts, tensors[name], axes, given.sum, sizes, check_names, where)
    for name, argument in tensors.items():
        if argument.access != "read" and name not in given.regions:
            raise ConfigError(
                f"'{name}' is written, so it needs a region: which part of it each tile writes",
                key=f"{key}.regions",
            )
    own = tunables.get(TRANSFORM, {})
    if GROUP not in own:
        raise ConfigError(
            f"has no tunable '{GROUP}' for '{TRANSFORM}'",
            key=f"{key.rpartition('.')[0]}.tunables",
            hint="Output tiles of a task: distribute: {group: {values: [1, 2, 4], off: 1}}.",
        )
    _check_parameters(own, f"{key.rpartition('.')[0]}.tunables.{TRANSFORM}", sums=bool(given.sum))


def _check_parameters(own: Mapping[str, Tunable], key: str, *, sums: bool) -> None:
    allowed = (GROUP, SPMD, SPLITS) if sums else (GROUP, SPMD)
    for name, tunable in own.items():
        if name not in allowed:
            raise ConfigError(
                f"the transform '{TRANSFORM}' has no parameter '{name}' here",
                key=key,
                hint=f"Allowed: {', '.join(allowed)}."
                + (" `splits` needs the axis of a sum." if name == SPLITS else ""),
            )
        for value in (*tunable.values, tunable.off):
            if name == SPMD and not isinstance(value, bool):
                raise ConfigError(f"{value!r} is neither true nor false", key=f"{key}.{name}")
            if name != SPMD and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise ConfigError(
                    f"{value!r} is no number of tiles",
                    key=f"{key}.{name}",
                    hint="Allowed: 1 or more.",
                )


def _check_axis_name(name: str, arguments: Mapping[str, Argument], key: str) -> None:
    # A variable of the rendered orchestration.
    if name == ALL or not name.isascii() or not name.isidentifier():
        raise ConfigError(f"'{name}' cannot be the name of an axis", key=key)
    if name in arguments:
        raise ConfigError("is also an argument of the kernel", key=key, hint="Rename the axis.")


def _check_region(
    parts: tuple[str, ...],
    argument: Argument,
    axes: Collection[str],
    summed: Collection[str],
    sizes: Collection[str],
    check_names: CheckNames,
    key: str,
) -> None:
    if len(parts) != len(argument.shape):
        raise ConfigError(
            f"{len(parts)} parts, but the tensor has {len(argument.shape)} dimensions "
            f"({', '.join(map(str, argument.shape)) or 'any shape'})",
            key=key,
        )
    if len(parts) > MAX_DIMENSIONS:
        raise ConfigError(f"a region has at most {MAX_DIMENSIONS} dimensions", key=key)
    for text in parts:
        part = parse_part(text, key)
        if part.axis != ALL and part.axis not in axes:
            raise ConfigError(
                f"unknown axis '{part.axis}'", key=key, hint=nearest(part.axis, [*axes, ALL])
            )
        if argument.access != "read" and (part.halo or part.axis in summed):
            raise ConfigError(
                f"'{text}' would be written by several tasks",
                key=key,
                hint="What a kernel writes has no halo, and no axis of a sum.",
            )
        check_names([part.before, part.behind], sizes, key)
