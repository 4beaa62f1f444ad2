"""Output tiles of a step as tasks: how many there are, and which part of each tensor one touches.

The kernel numbers its tiles with the slowest axis first. A task has tiles that follow each other
and form a box, so that its regions are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernloom.base.arithmetic import FUNCTIONS
from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.config.distribution import ALL, GROUP, SPLITS, SPMD, TRANSFORM, Part, parse_part
from kernloom.config.schema import Scalar, Target, TileAxis
from kernloom.plan.cores import is_wrapped
from kernloom.plan.schedule import StepRecord

SINGLE = "single_task"
"""Decision with the reason why a step is a single task."""
PLACEMENT = "placement"
"""Decision of a step that is executed as tasks: where its tensors are."""


@dataclass(frozen=True)
class Axis:
    """One axis of tiles of a step."""

    name: str
    size: str | int
    """Expression over the kernel's sizes."""
    tile: int
    extent: int

    @property
    def tiles(self) -> int:
        return -(-self.extent // self.tile)


@dataclass(frozen=True)
class Tiling:
    """The tasks of a step whose output tiles are shared out."""

    axes: tuple[Axis, ...]
    """Slowest first."""
    regions: Mapping[str, tuple[Part, ...]]
    """Tensor argument -> part of each dimension; others are touched as a whole."""
    group: int
    """Most tiles of a task."""
    splits: int
    summed: Axis | None
    spmd: bool
    """Whether one submission has all tasks as its blocks."""

    @property
    def tiles(self) -> int:
        count = 1
        for axis in self.axes:
            count *= axis.tiles
        return count

    @property
    def tiles_of_task(self) -> int:
        return int(FUNCTIONS["grouped"](self.group, *(axis.tiles for axis in self.axes)))

    @property
    def outputs(self) -> int:
        """Tasks that write parts of the output."""
        return self.tiles // self.tiles_of_task

    @property
    def tasks(self) -> int:
        return self.outputs * (self.splits + 1 if self.splits > 1 else 1)


def tiling_of(record: StepRecord, target: Target) -> Tiling | str:
    """How a step becomes tasks, or the reason why it is a single one."""
    chosen = record.decisions.get(TRANSFORM, {})
    if SINGLE in chosen:
        return str(chosen[SINGLE])
    found = record.kernel.source_for(target.sources)
    if found and (is_wrapped(found[0], target) or not found[1].template):
        return f"kernel '{record.kernel.name}' is a plain file, which has no tiles"
    declared = found[1].distribute if found else None
    if declared is None:
        return f"the source of kernel '{record.kernel.name}' does not say `distribute`"
    known = _known(record)
    key = f"{record.key}.sources.core.distribute"
    axes = [_axis(name, one, known, f"{key}.axes.{name}") for name, one in declared.axes.items()]
    summed = [_axis(name, one, known, f"{key}.sum.{name}") for name, one in declared.sum.items()]
    return Tiling(
        tuple(axes),
        {name: tuple(map(parse_part, parts)) for name, parts in declared.regions.items()},
        int(chosen.get(GROUP, 1)),
        int(chosen.get(SPLITS, 1)),
        summed[0] if summed else None,
        bool(chosen.get(SPMD, False)),
    )


def partial_results(record: StepRecord) -> int:
    """Partial results of an output tile, whose addresses follow the kernel's arguments."""
    splits = int(record.decisions.get(TRANSFORM, {}).get(SPLITS, 1))
    return splits if splits > 1 else 0


def _known(record: StepRecord) -> dict[str, Any]:
    tunables = record.kernel.tunables
    decided = [record.decisions.get(transform, {}).items() for transform in tunables]
    own = {name for group in tunables.values() for name in group}
    return {**record.sizes, **{n: value for group in decided for n, value in group if n in own}}


def _axis(name: str, given: TileAxis, known: Mapping[str, Scalar], key: str) -> Axis:
    tile = evaluate(given.tile, known, key=f"{key}.tile")
    extent = evaluate(given.size, known, key=f"{key}.size")
    for what, value in (("tile", tile), ("size", extent)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{value!r} is no length of a {what}", key=f"{key}.{what}")
    return Axis(name, given.size, tile, extent)


def report_of(record: StepRecord, target: Target) -> dict[str, Any]:
    """How a step becomes tasks, for people."""
    tiling = tiling_of(record, target)
    core = record.decisions.get("core", {}).get("type", "")
    if isinstance(tiling, str):
        whole = {a.name: ALL for a in record.arguments if a.kind == "tensor"}
        return {"tasks": 1, "core": core, "because": tiling, "regions": whole}
    report: dict[str, Any] = {
        "tasks": tiling.tasks,
        "core": core,
        "tiles": {axis.name: f"{axis.tiles} of {axis.tile}" for axis in tiling.axes},
        "tiles of a task": tiling.tiles_of_task,
        "regions": {a.name: _shown(tiling, a.name) for a in record.arguments if a.kind == "tensor"},
    }
    if tiling.spmd:
        report["submissions"] = 1
    if tiling.splits > 1 and tiling.summed:
        report["splits"] = {tiling.summed.name: tiling.splits}
        report["tasks that add partial results"] = tiling.outputs
    return report


def _shown(tiling: Tiling, argument: str) -> str:
    parts = tiling.regions.get(argument)
    if parts is None or tiling.spmd:
        return ALL
    unsplit = tiling.summed.name if tiling.summed and tiling.splits == 1 else ""
    texts = []
    for part in parts:
        halo = f"~{part.before}:{part.behind}" if part.halo else ""
        texts.append(ALL if part.axis in (ALL, unsplit) else f"{part.axis}{halo}")
    return ", ".join(texts)
