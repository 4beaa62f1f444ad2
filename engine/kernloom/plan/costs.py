"""The cost model of a kernel whose output tiles are tasks for all PEs.

A kernel's own model is the time of a single PE that does everything. From what the source declares
about its tiles follow the tasks, and the bandwidth that each gets when all of them copy at once.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernloom.base.expressions import parse
from kernloom.config.distribution import ALL, GROUP, SPLITS, SPMD, TRANSFORM, parse_part
from kernloom.config.schema import Distribute, Kernel


def for_tasks(kernel: Kernel, families: Iterable[str], *, on: bool) -> Kernel:
    """A kernel whose model counts the time of its tasks on all PEs, if its tiles are shared out;
    otherwise only the `off` values of `distribute` are left."""
    return kernel.derive(_with_model if on else _switched_off, tuple(families))


def _switched_off(kernel: Kernel, families: tuple[str, ...]) -> Kernel:
    if TRANSFORM not in kernel.tunables:
        return kernel
    fixed = {
        name: replace(tunable, values=(tunable.off,))
        for name, tunable in kernel.tunables[TRANSFORM].items()
    }
    return replace(kernel, tunables={**kernel.tunables, TRANSFORM: fixed})


def _with_model(kernel: Kernel, families: tuple[str, ...]) -> Kernel:
    found = kernel.source_for(families)
    declared = found[1].distribute if found else None
    if declared is None:
        return kernel
    lengths = [f"ceil_div({axis.size}, {axis.tile})" for axis in declared.axes.values()]
    outputs = f"({' * '.join(lengths)}) / grouped({GROUP}, {', '.join(lengths)})"
    own = kernel.tunables[TRANSFORM]
    tasks = f"{outputs} * {SPLITS}" if SPLITS in own else outputs
    submissions = f"(1 if {SPMD} else {tasks})" if SPMD in own else tasks
    time = _on_all_pes(kernel, declared, tasks)
    model = f"distributed({time}, {tasks}, pes, overhead, handling, submit * {submissions})"
    constraints = kernel.constraints
    if SPLITS in own:
        # What a step after this one could do at its end it cannot do with partial results.
        adding = f"distributed(0, {outputs}, pes, overhead, handling, submit * {outputs})"
        model = f"{model} + (0 if {SPLITS} == 1 else {adding} + 1e15 * takes_epilogue)"
        if SPMD in own:
            constraints = (*constraints, f"{SPLITS} == 1 or not {SPMD}")
    return replace(kernel, model=model, constraints=constraints)


def _on_all_pes(kernel: Kernel, declared: Distribute, tasks: str) -> str:
    """The kernel's model with the bandwidth that its tasks share, and with copies that overlap with
    computing only within a task."""
    copied = ", ".join(_copied(kernel, declared, tasks))
    memory = f"spread(hbm_bandwidth, cubes, stripe / element, {copied})"
    shared = f"shared(bandwidth, {tasks}, pes, {memory}, cube_pes, noc_bandwidth)"
    tree = _OnAllPes(parse(shared).tree, parse(tasks).tree).visit(
        copy.deepcopy(parse(kernel.model).tree)
    )
    return ast.unparse(tree)


class _OnAllPes(ast.NodeTransformer):
    def __init__(self, bandwidth: ast.expr, tasks: ast.expr) -> None:
        self._bandwidth, self._tasks = bandwidth, tasks

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._bandwidth if node.id == "bandwidth" else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="overlapped"), args=[first, second, parts]):
                each = ast.BinOp(parts, ast.Div(), self._tasks)
                least = ast.Call(ast.Name("max", ast.Load()), [ast.Constant(1), each], [])
                return ast.Call(node.func, [first, second, least], [])
        return node


def _copied(kernel: Kernel, declared: Distribute, tasks: str) -> Iterator[str]:
    """For each tensor the elements that all tiles together copy, those that it has, and those from
    the first to the last one of a tile."""
    axes = {**declared.axes, **declared.sum}
    for name, argument in kernel.arguments.items():
        if argument.kind != "tensor" or not argument.shape:
            continue  # one of any shape counts as small
        extents = [f"({extent})" for extent in argument.shape]
        parts = [parse_part(text) for text in declared.regions.get(name, (ALL,) * len(extents))]
        factors = []
        for part, extent in zip(parts, extents, strict=True):
            if not part.halo:
                factors.append(extent)
                continue
            axis = axes[part.axis]
            tiles = f"ceil_div({axis.size}, {axis.tile})"
            factors.append(f"({axis.size} + {tiles} * ({part.before} + {part.behind}))")
        touched = {part.axis for part in parts} & axes.keys()
        if touched:
            others = (axis for one, axis in declared.axes.items() if one not in touched)
            factors += [f"ceil_div({axis.size}, {axis.tile})" for axis in others]
        else:
            factors.append(tasks)
        yield " * ".join(factors)
        yield " * ".join(extents)
        slowest = axes[parts[0].axis].tile if parts and parts[0].axis != ALL else ""
        yield " * ".join([f"({slowest})", *extents[1:]] if slowest else extents)
