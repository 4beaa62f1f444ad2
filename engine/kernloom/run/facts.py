"""The named facts that identify a trial: all that can change its result, and nothing else.

Descriptions, install hints, other cases, other targets' sources, limits and how a run is done are
no facts. Whatever reaches a kernel by rendering or compiling is in the keys of its artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernloom
from kernloom import __version__
from kernloom.base.files import files_below, sha256_file, sha256_json
from kernloom.base.machine import machine_class
from kernloom.base.plugin_code import code_digest, is_ours
from kernloom.base.remember import ById
from kernloom.config.schema import (
    LIMITS,
    NOT_IDENTITY,
    Arch,
    Experiment,
    Fill,
    Target,
    Workload,
)
from kernloom.device.devices import DEVICES
from kernloom.measure.data import GENERATORS, REFERENCE_FUNCTIONS, read_first
from kernloom.measure.numpy_code import numpy_build
from kernloom.measure.verify import tolerance_for
from kernloom.pipeline.graph import StageGraph
from kernloom.pipeline.stage import Stage
from kernloom.plan.inspect import sizes_of

if TYPE_CHECKING:
    from kernloom.run.planning import Planned

Groups = Mapping[str, Mapping[str, Any]]
SHARED = "shared"

POLICY = (
    "samples",
    "warmup",
    "min_rounds",
    "max_rounds",
    "min_sample_us",
    "bound",
    "budget_s",
    "clock",
    "pin",
    "scheduling",
    "cache",
    "aslr",
    "baselines",
)
"""Fields of a measuring policy that decide how a trial is measured. `floor` judges differences
afterwards; `together` depends on how many trials there happen to be."""
FILLED_BY: Mapping[str, tuple[str, ...]] = {
    "uniform": ("low", "high"),
    "normal": ("mean", "std"),
    "integers": ("low", "high"),
    "constant": ("value",),
    "pattern": ("pattern", "low", "high"),
    # By its content, not its name.
    "file": (),
    "generator": ("generator",),
}
"""Kind of fill -> the fields that it looks at."""
THIS_MACHINE = ("machine", "device", "arch")
"""Groups that describe the machine that planned; on a cluster another one measures."""

_shared: ById[dict[str, Mapping[str, Any]]] = ById()
_codes: ById[dict[str, str]] = ById()
_graphs: ById[_Running] = ById()


@dataclass(frozen=True)
class Facts:
    """The facts of a trial: group -> name -> value, plain data.

    Groups are called after the part of the config they come from, where there is one.
    """

    shared: Groups
    """What most points of a sweep have in common, as the very same object."""
    own: Groups

    def groups(self) -> dict[str, Mapping[str, Any]]:
        return {**self.shared, **self.own}

    def document(self) -> dict[str, Any]:
        """As it is stored: what is shared once, in one piece."""
        return {SHARED: self.shared, **self.own}


def groups_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The groups of a stored document."""
    own = {group: found for group, found in document.items() if group != SHARED}
    return {**document.get(SHARED, {}), **own}


def facts_of(plan: Planned) -> Facts:
    """All facts of a planned trial."""
    experiment, workload = plan.experiment, plan.experiment.workload
    running = _running(plan.graph)
    stages = {name: experiment.pipeline.stages[name] for name in running.names}
    seen = (
        *(workload.name, workload.dtype, workload.tensors, workload.steps, workload.kernels),
        *(workload.scalars, workload.golden, workload.tolerance, workload.cost, experiment.case),
        *(experiment.target, experiment.arch, experiment.toolchain, experiment.runtime),
        *(experiment.measure, plan.programs, plan.device_facts, plan.code, plan.emulator_version),
        *running.names,
        *stages.values(),
    )
    if plan.refusal:
        # Never reused: each point keeps a row of its own.
        return Facts({"names": _named(experiment)}, {"refused": {"config": _config_digest(plan)}})
    sizes = sizes_of(workload)
    own: dict[str, Mapping[str, Any]] = {
        "workload.sizes": {name: sizes[name] for name in workload.sizes},
        "data files": plan.files,
        "placement": plan.placement,
        "calls": _call_facts(plan),
        "artifacts": {item.step.name: item.artifact.key for item in plan.steps},
        "run": {"seed": experiment.seed} | _swept_settings(plan),
    }
    if plan.baselines:
        own["baselines"] = {name: item.identity for name, item in plan.baselines.items()}
    if running.outside:
        own["config"] = {"digest": _config_digest(plan)}
    return Facts(_shared.get(lambda *_: _shared_facts(plan, stages), *seen), own)


def _shared_facts(
    plan: Planned, stages: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    experiment, workload = plan.experiment, plan.experiment.workload
    tensors = _tensor_facts(workload)
    return {
        "names": _named(experiment),
        "workload.tensors": tensors,
        "workload.scalars": workload.scalars,
        "workload.golden": workload.golden,
        "workload.tolerance": _tolerance_facts(workload, tensors),
        "workload.cost": dict(vars(workload.cost)),
        "programs": {role: program.key for role, program in plan.programs.items()},
        "measure": {name: getattr(experiment.measure, name) for name in POLICY},
        "stages": stages,
        "target": _target_facts(experiment.target, plan.emulator_version),
        "arch": _arch_facts(experiment),
        "device": plan.device_facts,
        "machine": machine_class(),
        "code": plan.code,
    }


def facts_anywhere(facts: Facts, arch: Mapping[str, Any], baselines: Mapping[str, Any]) -> Facts:
    """Facts that are the same on whichever machine a plan is made: less what describes this one,
    and with the arch and the baselines as they are everywhere."""
    shared = {group: found for group, found in facts.shared.items() if group not in THIS_MACHINE}
    shared["names"] = {**facts.shared["names"], "arch": str(arch.get("name"))}
    shared["arch"] = {name: arch.get(name) for name in ("isa", "memory")}
    return Facts(shared, {**facts.own, "baselines": baselines} if baselines else facts.own)


WORK = (
    *("workload.sizes", "workload.tensors", "workload.scalars", "workload.golden"),
    *("workload.tolerance", "data files", "measure", "code", "run"),
)
"""Groups that decide what is computed and how it is measured, whoever computes it."""


def _named(experiment: Experiment) -> dict[str, Any]:
    """The names that trials are filed under in the store."""
    return {
        "workload": experiment.workload.name,
        "case": experiment.case,
        "target": experiment.target.name,
        "variant": experiment.target.variant,
        "arch": experiment.arch.name,
        "toolchain": experiment.toolchain.name,
        "runtime": experiment.runtime.name,
        "measure": experiment.measure.name,
    }


def _tensor_facts(workload: Workload) -> dict[str, Any]:
    """Of tensors that some step uses; their shapes are expressions over the sizes."""
    used = {
        str(step.args.get(name, name))
        for step in workload.steps.values()
        for name, argument in workload.kernels[step.kernel].arguments.items()
        if argument.kind == "tensor"
    }
    filled = read_first(workload.steps, workload.kernels)
    return {
        name: {"dtype": tensor.dtype or workload.dtype, "shape": list(tensor.shape)}
        | ({"fill": _fill_facts(tensor.fill)} if name in filled else {})
        for name, tensor in workload.tensors.items()
        if name in used
    }


def _fill_facts(fill: Fill) -> dict[str, Any]:
    return {"kind": fill.kind} | {name: getattr(fill, name) for name in FILLED_BY[fill.kind]}


def _tolerance_facts(workload: Workload, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Of the element types that outputs have."""
    dtypes = {str(tensors[name]["dtype"]) for name in workload.golden}
    return {dtype: dict(vars(tolerance_for(workload.tolerance, dtype))) for dtype in sorted(dtypes)}


def _target_facts(target: Target, emulator_version: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"device": target.device, "options": dict(target.options)}
    if target.emulator:
        facts["emulator"] = {
            "program": target.emulator.program,
            "args": list(target.emulator.args),
            "version": emulator_version,
        }
    if not is_ours(DEVICES.get(target.device, key="target.device")):
        # It is handed the whole target, and may look at any of it.
        facts["as handed over"] = _as_handed_over(target)
    return facts


def _arch_facts(experiment: Experiment) -> dict[str, Any]:
    arch = experiment.arch
    facts: dict[str, Any] = {"isa": arch.isa, "memory": dict(arch.memory)}
    if not is_ours(DEVICES.get(experiment.target.device, key="target.device")):
        facts["as handed over"] = _as_handed_over(arch)
    return facts


def _as_handed_over(section: Target | Arch) -> str:
    values = {name: value for name, value in vars(section).items() if name != "about"}
    return sha256_json({name: repr(value) for name, value in values.items()})[:32]


def _call_facts(plan: Planned) -> dict[str, Any]:
    """Which calls are made in which order, and with what."""
    return {
        item.step.name: [
            position,
            *(
                [argument.name, argument.kind, argument.access, argument.dtype, argument.binding]
                for argument in item.step.arguments
            ),
        ]
        for position, item in enumerate(plan.steps)
    }


@dataclass(frozen=True)
class _Running:
    """The stages of a pipeline that run; the others reach a trial by its artifacts and calls."""

    names: tuple[str, ...]
    types: tuple[type[Stage], ...]
    outside: bool
    """One is of another package: it may look at any part of the experiment."""


def _running(graph: StageGraph) -> _Running:
    return _graphs.get(_found_running, graph)


def _found_running(graph: StageGraph) -> _Running:
    found = {
        name: type(node.stage) for name, node in graph.nodes.items() if node.stage.phase == "run"
    }
    outside = not all(map(is_ours, found.values()))
    return _Running(tuple(found), tuple(found.values()), outside)


def _config_digest(plan: Planned) -> str:
    data = plan.point.data
    return sha256_json({k: v for k, v in data.items() if k not in (*NOT_IDENTITY, *LIMITS)})[:32]


def _swept_settings(plan: Planned) -> dict[str, Any]:
    """Settings that are no facts, unless a sweep asks what comes of each."""
    swept = plan.point.swept
    return {
        key: plan.point.data[key]
        for key in (*LIMITS, *NOT_IDENTITY)
        if key in swept and key in plan.point.data
    }


def code_facts(experiment: Experiment, graph: StageGraph, folder: Path) -> dict[str, str]:
    """Name -> version and hash of the code that decides what is right, runs kernels and times them;
    hashes that take time are kept in `folder`."""
    running, workload = _running(graph), experiment.workload
    return _codes.get(
        lambda *_: _code_facts(experiment, running.types, folder),
        *(workload.golden, workload.tensors, workload.steps, workload.kernels),
        *(experiment.target, *running.types),
    )


def _code_facts(
    experiment: Experiment, stages: Sequence[type[Stage]], folder: Path
) -> dict[str, str]:
    workload = experiment.workload
    inputs = read_first(workload.steps, workload.kernels)
    found = {"kernloom": f"{__version__} {engine_digest()[:16]}", "numpy": _numpy_build(folder)}
    for name, text in workload.golden.items():
        if text.isidentifier() and text not in inputs:
            reference = REFERENCE_FUNCTIONS.get(text, key=f"workload.golden.{name}")
            if not is_ours(reference):
                distribution = REFERENCE_FUNCTIONS.distribution(text)
                found[f"reference {text}"] = code_digest(reference, distribution)
    for name in inputs:
        fill = workload.tensors[name].fill
        if fill.kind == "generator":
            called = str(fill.generator)
            generator = GENERATORS.get(called, key=f"workload.tensors.{name}.fill.generator")
            if not is_ours(generator):
                distribution = GENERATORS.distribution(called)
                found[f"generator {called}"] = code_digest(generator, distribution)
    for stage in stages:
        if not is_ours(stage):
            found[f"stage {stage.__name__}"] = code_digest(stage, "")
    device = DEVICES.get(experiment.target.device, key="target.device")
    if not is_ours(device):
        name = experiment.target.device
        found[f"device {name}"] = code_digest(device, DEVICES.distribution(name))
    return found


@cache
def _numpy_build(folder: Path) -> str:
    """Once per process: what is imported stays what it is."""
    return numpy_build(folder)


@cache
def engine_digest() -> str:
    """Hash of our own code that decides what is right, runs kernels and times them: for OpenCL and
    bare metal the runner itself is Python, for the others it is what starts the runner."""
    package = Path(kernloom.__file__).parent
    others = [package / "base/expressions.py", package / "base/arithmetic.py"]
    ours = [
        path for part in ("measure", "device") for path in files_below(package / part, (".py",))
    ]
    return sha256_json([sha256_file(path) for path in [*sorted(ours), *others]])
