"""Facts: the named values that identify a trial, namely all that can change its result.

Descriptions, install hints, other cases, other targets' sources, limits and settings of the run
are not facts. Inputs of rendering and compilation are covered by the keys of the artifacts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernloom.base.digest import DigestCache, Section, digest_of
from kernloom.base.files import sha256_json
from kernloom.base.machine import machine_class
from kernloom.base.plugin_code import is_ours
from kernloom.config.accelerator import SECTIONS, settings_of
from kernloom.config.schema import (
    LIMITS,
    NOT_IDENTITY,
    Arch,
    Experiment,
    Fill,
    Target,
    Workload,
)
from kernloom.pipeline.graph import StageGraph
from kernloom.pipeline.stage import Stage
from kernloom.plan.inspect import inputs_of, sizes_of
from kernloom.plan.planned import Facts, Planned

POLICY = (
    "samples",
    "warmup",
    "min_rounds",
    "max_rounds",
    "min_sample_us",
    "bound",
    "span_s",
    "drift",
    "budget_s",
    "clock",
    "pin",
    "scheduling",
    "cache",
    "aslr",
    "peers",
)
"""Fields of a measuring policy that affect how a trial is measured. `floor` judges differences
afterwards; `together` depends on the number of trials in a sweep."""
FILLED_BY: Mapping[str, tuple[str, ...]] = {
    "uniform": ("low", "high"),
    "sprinkled": ("low", "high", "value"),
    "normal": ("mean", "std"),
    "integers": ("low", "high"),
    "constant": ("value",),
    "pattern": ("pattern", "low", "high"),
    # Identified by content, not by name.
    "file": (),
    "generator": ("generator",),
}
"""Kind of fill -> the fields it uses."""
THIS_MACHINE = ("machine", "device", "arch")
"""Groups that describe the planning machine; on a cluster another machine measures."""


def facts_of(plan: Planned, cache: DigestCache) -> Facts:
    """All facts of a planned trial."""
    experiment, workload = plan.experiment, plan.experiment.workload
    if plan.refusal:
        # Refused trials are never reused: each point keeps its own row.
        names: Section[Mapping[str, Any]] = Section({"names": _named(experiment)})
        return Facts(names, {"refused": {"config": _config_digest(plan)}})
    sizes = sizes_of(workload)
    running = running_stages(plan.graph)
    own: dict[str, Mapping[str, Any]] = {
        "workload.sizes": {name: sizes[name] for name in workload.sizes},
        "data files": plan.files,
        "placement": plan.placement,
        "calls": _call_facts(plan),
        "artifacts": {item.step.name: item.artifact.key for item in plan.steps},
        "run": {"seed": experiment.seed} | _swept_settings(plan),
    }
    if workload.stateful:
        own["run"] = {**own["run"], "stateful": True}
    if plan.orchestration:
        artifact, launch = plan.orchestration.artifact, plan.orchestration.launch
        own["orchestration"] = {"artifact": artifact.key, **launch.facts}
    if workload.allow:
        own["workload.allow"] = {"names": sorted(workload.allow)}
    if plan.peers:
        own["peers"] = {name: item.identity for name, item in plan.peers.items()}
    if running.outside:
        own["config"] = {"digest": _config_digest(plan)}
    parts = (
        *(
            workload.tensors,
            workload.steps,
            workload.orchestration,
            workload.kernels,
            workload.scalars,
            workload.golden,
        ),
        *(
            workload.tolerance,
            workload.region,
            workload.cost,
            plan.graph,
            plan.device_facts,
            plan.code,
        ),
        *(experiment.target, experiment.arch, experiment.toolchain, experiment.runtime),
    )
    key = (
        *(facts_of, workload.name, workload.dtype, experiment.case, experiment.measure.digest),
        *(plan.emulator_version, plan.device_is_ours),
        *(program.key for program in plan.programs.values()),
        *map(digest_of, parts),
    )
    return Facts(cache.by_key(key, lambda: _shared_facts(plan, running.names)), own)


def _shared_facts(plan: Planned, running: Iterable[str]) -> Section[Mapping[str, Any]]:
    experiment, workload = plan.experiment, plan.experiment.workload
    tensors = _tensor_facts(workload)
    facts: dict[str, Mapping[str, Any]] = {
        "names": _named(experiment),
        "workload.tensors": tensors,
        "workload.scalars": workload.scalars,
        "workload.golden": workload.golden,
        "workload.tolerance": _tolerance_facts(workload, tensors),
        "workload.region": {
            name: [*region] if isinstance(region, tuple) else region
            for name, region in workload.region.items()
        },
        "workload.cost": dict(vars(workload.cost)),
        "programs": {role: program.key for role, program in plan.programs.items()},
        "measure": {name: getattr(experiment.measure, name) for name in POLICY},
        "stages": {name: experiment.pipeline.stages[name] for name in running},
        "target": _target_facts(plan),
        "arch": _arch_facts(plan),
        "device": plan.device_facts,
        "machine": machine_class(),
        "code": plan.code,
    }
    return Section(facts)


def facts_anywhere(facts: Facts, arch: Mapping[str, Any], peers: Mapping[str, Any]) -> Facts:
    """Facts that are equal on every machine: without those of this machine, and with the arch and
    the peers in their portable form."""
    shared = {group: found for group, found in facts.shared.items() if group not in THIS_MACHINE}
    shared["names"] = {**facts.shared["names"], "arch": str(arch.get("name"))}
    shared["arch"] = {name: arch.get(name) for name in ("isa", "memory")} | {
        name: arch[name] for name in SECTIONS if arch.get(name) is not None
    }
    own = {**facts.own, "peers": peers} if peers else facts.own
    return Facts(Section(shared), own)


WORK_GROUPS = (
    *("workload.sizes", "workload.tensors", "workload.scalars", "workload.golden"),
    *("workload.tolerance", "workload.region", "data files", "measure", "code", "run"),
)
"""Groups that affect the computation and its measurement, whatever the implementation."""


def _named(experiment: Experiment) -> dict[str, Any]:
    """The names that identify trials in the store."""
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
    """Facts of the tensors that steps use; their shapes are expressions over the sizes."""
    used = {name for name, _ in workload.accesses()}
    filled = inputs_of(workload)
    return {
        name: {"dtype": tensor.dtype or workload.dtype, "shape": list(tensor.shape)}
        | ({"fill": _fill_facts(tensor.fill)} if name in filled else {})
        for name, tensor in workload.tensors.items()
        if name in used
    }


def _fill_facts(fill: Fill) -> dict[str, Any]:
    return {"kind": fill.kind} | {name: getattr(fill, name) for name in FILLED_BY[fill.kind]}


def _tolerance_facts(workload: Workload, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tolerances of the output element types."""
    dtypes = {str(tensors[name]["dtype"]) for name in workload.golden}
    return {dtype: dict(vars(workload.tolerance_for(dtype))) for dtype in sorted(dtypes)}


def _target_facts(plan: Planned) -> dict[str, Any]:
    target = plan.experiment.target
    facts: dict[str, Any] = {"device": target.device, "options": dict(target.options)}
    if target.emulator:
        facts["emulator"] = {
            "program": target.emulator.program,
            "args": list(target.emulator.args),
            "version": plan.emulator_version,
        }
    runtime = plan.experiment.runtime
    for name in ("ring", "graph"):
        sizes = getattr(runtime, name)
        if sizes:
            facts[name] = dict(vars(sizes))
    if runtime.queue is not None:
        facts["queue"] = runtime.queue
    if not plan.device_is_ours:
        # The device gets the whole target, and may use any part of it.
        facts["as handed over"] = _as_handed_over(target)
    return facts


def _arch_facts(plan: Planned) -> dict[str, Any]:
    arch = plan.experiment.arch
    facts: dict[str, Any] = {"isa": arch.isa, "memory": dict(arch.memory)}
    if arch.topology:
        facts["accelerator"] = dict(settings_of(arch))
    if not plan.device_is_ours:
        facts["as handed over"] = _as_handed_over(arch)
    return facts


def _as_handed_over(section: Target | Arch) -> str:
    left_out = ("about", "provenance")
    values = {name: value for name, value in vars(section).items() if name not in left_out}
    return sha256_json({name: repr(value) for name, value in values.items()})[:32]


def _call_facts(plan: Planned) -> dict[str, Any]:
    """Calls in order, with their arguments."""
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
class RunningStages:
    """The stages of the `run` phase; other stages are covered by artifacts and calls."""

    names: tuple[str, ...]
    types: tuple[type[Stage], ...]
    outside: bool
    """Whether one is from another package: it may use any part of the experiment."""


def running_stages(graph: StageGraph) -> RunningStages:
    return graph.derive(_found_running)


def _found_running(graph: StageGraph) -> RunningStages:
    found = {
        name: type(node.stage) for name, node in graph.nodes.items() if node.stage.phase == "run"
    }
    outside = not all(map(is_ours, found.values()))
    return RunningStages(tuple(found), tuple(found.values()), outside)


def _config_digest(plan: Planned) -> str:
    data = plan.point.data
    return sha256_json({k: v for k, v in data.items() if k not in (*NOT_IDENTITY, *LIMITS)})[:32]


def _swept_settings(plan: Planned) -> dict[str, Any]:
    """Settings that are facts only if they are swept."""
    swept = plan.point.swept
    return {
        key: plan.point.data[key]
        for key in (*LIMITS, *NOT_IDENTITY)
        if key in swept and key in plan.point.data
    }
