"""Plans peers: the same workload from other sources, or by numpy, to measure beside a trial."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernloom.base.digest import DigestCache
from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import sha256_json
from kernloom.config.compose import Point
from kernloom.device.devices import DEVICES
from kernloom.measure.sampler import threads_of
from kernloom.plan.planned import Planned, PlannedPeer

NUMPY = "numpy"
OPENBLAS = "openblas"
KEY = "measure.peers"
C_SOURCES = "host"
"""The source family of targets with C kernels."""


@dataclass(frozen=True)
class Sources:
    """A peer that is another source of the same kernels."""

    families: tuple[str, ...]
    """Source families of a kernel to choose from, the first one found."""
    threaded: bool = False
    """Whether it runs on as many threads as ours."""
    flags: tuple[str, ...] = ()
    """Compiler flags that its user would add."""


SOURCES = {
    "plain_c": Sources(("plain",), flags=("-O3",)),
    OPENBLAS: Sources((OPENBLAS, "plain"), threaded=True, flags=("-O3",)),
}
NAMES = (NUMPY, *SOURCES)


@dataclass(frozen=True)
class Planner:
    """The inputs for planning peers."""

    transforms: Collection[str]
    """Stage types that sources other than ours do not support."""
    planned: Callable[[Point], Planned]
    cache: Path
    results: DigestCache


def plan_peers(plan: Planned, planner: Planner) -> dict[str, PlannedPeer]:
    """The peers that the policy names; one that cannot compute the workload is refused by name."""
    names = plan.experiment.measure.peers
    return {name: _planned(name, plan, planner) for name in names}


def _planned(name: str, plan: Planned, planner: Planner) -> PlannedPeer:
    if name not in NAMES:
        raise ConfigError(f"unknown peer '{name}'", key=KEY, hint=nearest(name, NAMES))
    if reason := unfit_reason(name, plan):
        fit = [other for other in NAMES if not unfit_reason(other, plan)]
        hint = f"Allowed here: {', '.join(fit)}." if fit else "None of them fits here."
        raise ConfigError(f"peer '{name}' {reason}", key=KEY, hint=hint)
    if name not in SOURCES:
        from kernloom.measure.numpy_peer import numpy_identity
        from kernloom.plan.facts import WORK_GROUPS, facts_of

        facts = facts_of(plan, planner.results).groups()
        work = [facts[group] for group in WORK_GROUPS]
        return PlannedPeer(sha256_json([name, numpy_identity(), work, threads_of(plan.steps)]))
    sources = SOURCES[name]
    libraries: tuple[Path, ...] = ()
    made_of: tuple[str, ...] = ()
    if name == OPENBLAS:
        from kernloom.measure.openblas import find_openblas

        found = find_openblas(planner.cache)
        libraries, made_of = (found.path,), (found.identity,)
    threads = plan.params.get("parallelize", {}) if sources.threaded else {}
    point = Point({}, _peer_config(plan.point.data, sources, planner.transforms, threads))
    other = planner.planned(point)
    return PlannedPeer(peer_identity(name, other, made_of), other, libraries, made_of)


def peer_identity(name: str, plan: Planned, made_of: tuple[str, ...]) -> str:
    """The identity of a peer from its own sources."""
    return sha256_json([name, plan.id, *made_of])


def unfit_reason(name: str, plan: Planned) -> str:
    """Why a peer cannot be measured beside a trial; empty if it can."""
    target, workload = plan.experiment.target, plan.experiment.workload
    runs_natively = DEVICES.get(target.device, key="target.device").runs_natively(target)
    if name == NUMPY:
        if not runs_natively:
            return f"runs on the host alone, not on device '{target.device}'"
        if plan.experiment.measure.cache == "cold":
            return "cannot be measured with cold caches: what it allocates cannot be flushed"
        return ""
    if C_SOURCES not in target.sources:
        return f"is C, which target '{target.name}' does not take"
    if name == OPENBLAS and not runs_natively:
        return f"runs on the host alone, not on device '{target.device}'"
    families = SOURCES[name].families
    kernels = {step.kernel: workload.kernels[step.kernel] for step in workload.steps.values()}
    # If no kernel has its first source, it would be another peer under its name.
    if not any(families[0] in kernel.sources for kernel in kernels.values()):
        return (
            f"cannot compute workload '{workload.name}': kernel '{next(iter(kernels))}' has no "
            f"source '{families[0]}'"
        )
    lacking = [k for k, kernel in kernels.items() if not set(families) & set(kernel.sources)]
    if lacking:
        return (
            f"cannot compute workload '{workload.name}': kernel '{lacking[0]}' has no source "
            f"'{families[-1]}'"
        )
    return ""


def _peer_config(
    data: Mapping[str, Any],
    sources: Sources,
    transforms: Collection[str],
    threads: Mapping[str, Any],
) -> dict[str, Any]:
    """The config with these sources, and without the transforms that they do not support."""
    pipeline = {
        **data["pipeline"],
        "stages": without_transforms(data["pipeline"]["stages"], transforms),
    }
    toolchain = data["toolchain"]
    choice = {"fixed": {"parallelize": threads} if threads else {}, "file": None}
    for name, stage in pipeline["stages"].items():
        if stage.get("use") == "select":
            pipeline["stages"][name] = {**stage, **choice, "providers": ["fixed", "model"]}
    return {
        **data,
        "target": {**data["target"], "sources": list(sources.families)},
        "toolchain": {**toolchain, "extra_flags": [*sources.flags, *toolchain["extra_flags"]]},
        "pipeline": pipeline,
        "measure": {**data["measure"], "peers": []},
        "select": {**data["select"], **choice, "providers": ["fixed", "model"]},
    }


def without_transforms(
    stages: Mapping[str, Mapping[str, Any]], transforms: Collection[str]
) -> dict[str, Any]:
    """The stages without transforms; a consumer of a removed transform's schedule gets its
    input."""
    before: dict[str, str] = {}
    for name, stage in stages.items():
        given = (stage.get("in") or {}).get("schedule")
        if stage.get("use") in transforms and isinstance(given, Mapping) and "ref" in given:
            before[f"{name}.schedule"] = str(given["ref"])

    def origin(text: str) -> str:
        return origin(before[text]) if text in before else text

    kept = {name: stage for name, stage in stages.items() if f"{name}.schedule" not in before}
    return {
        name: {
            **stage,
            "in": {
                key: {"ref": origin(str(value["ref"]))}
                if isinstance(value, Mapping) and "ref" in value
                else value
                for key, value in (stage.get("in") or {}).items()
            },
            **({"after": [n for n in stage["after"] if n in kept]} if "after" in stage else {}),
        }
        for name, stage in kept.items()
    }
