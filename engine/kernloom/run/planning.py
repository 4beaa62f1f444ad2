"""From overrides to planned trials: every point composed, validated, rendered and keyed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from kernloom.base.digest import DigestCache, Section, as_section, digest_of
from kernloom.base.errors import (
    ConfigError,
    KernloomError,
    PipelineError,
    UnavailableError,
    UsageError,
)
from kernloom.base.files import canonical_json, sha256_json
from kernloom.base.machine import available_memory
from kernloom.base.plugin_code import is_ours
from kernloom.config.compose import Point, Refuse, error_at_point
from kernloom.config.overrides import Overrides
from kernloom.config.schema import OBSERVATIONS
from kernloom.config.validate import experiment as validated
from kernloom.device.contract import Device
from kernloom.device.devices import DEVICES, check_supported
from kernloom.measure.data import check_goldens
from kernloom.measure.golden_files import golden_digests
from kernloom.measure.placement import placement_of
from kernloom.pipeline.graph import read_graph
from kernloom.pipeline.stage import Context
from kernloom.plan.artifact import Artifact
from kernloom.plan.facts import facts_of
from kernloom.plan.identity import data_files, identity
from kernloom.plan.inspect import check_memory, tensors_of
from kernloom.plan.orchestration import placement_of as placement_of_tasks
from kernloom.plan.planned import Brief, OwnData, Planned, PlannedOrchestration, Refusal
from kernloom.plan.select import check_applied
from kernloom.plan.sources import sources_of
from kernloom.run.assembly import Assembly
from kernloom.run.code_facts import code_facts
from kernloom.run.fleets import fleet_settings
from kernloom.run.peers import (
    Planner,
    peer_identity,
    plan_peers,
)

MEASURING = frozenset({"measure"})
"""Stage types that a peer's plan omits: the trial it is compared with measures it."""
Seen = Callable[[Planned], None]
MAX_PLANS_IN_MEMORY = 10_000
"""Number of points of a sweep whose full plan is kept in memory."""


class PlannedSweep:
    """Plans points, and drops the details of the oldest if there are many."""

    def __init__(
        self, assembly: Assembly, without: frozenset[str], memory: int, *, alone: bool
    ) -> None:
        self._assembly = assembly
        self._without = without
        self._memory = memory
        self._alone = alone
        self._change: Callable[[Planned], Planned] = lambda plan: plan
        self._whole: deque[Planned] = deque()
        self._briefs: dict[str, Brief] = {}
        """Most points of a sweep share it."""

    def plan(self, point: Point) -> Planned:
        plan = self._planned(point)
        if point.again is not None:
            plan.sweep = self
            self._keep(plan)
        return plan

    def plan_again(self, plan: Planned) -> None:
        """Restore the dropped details of a plan."""
        same = self._planned(plan.point)
        if same.id != plan.id:
            raise UnavailableError(
                f"what the trial {plan.id} is made from has changed while the sweep was running",
                hint="Run the same command again: what is finished is stored.",
            )
        for name in plan.recalled:
            setattr(plan, name, getattr(same, name))
        self._keep(plan)

    def varied(self, change: Callable[[Planned], Planned]) -> PlannedSweep:
        """The same sweep with a change applied to each plan."""
        other = PlannedSweep(self._assembly, self._without, self._memory, alone=self._alone)
        other._change = change
        return other

    def take(self, plan: Planned) -> Planned:
        """The changed version of a plan from the sweep that this one varies."""
        changed = self._change(plan)
        if plan.sweep is not None:
            changed.sweep = self
            self._keep(changed)
        return changed

    def _planned(self, point: Point) -> Planned:
        return self._change(
            _planned(self._assembly, point, self._without, self._memory, alone=self._alone)
        )

    def _keep(self, plan: Planned) -> None:
        if plan.kept is None:
            plan.kept = self._shared(plan.brief)
        self._whole.append(plan)
        if len(self._whole) <= MAX_PLANS_IN_MEMORY:
            return
        oldest = self._whole.popleft()
        if oldest.sweep is None:
            return
        oldest.drop()
        oldest.point.drop()

    def _shared(self, brief: Brief) -> Brief:
        artifacts = [artifact.key for _, artifact in brief.artifacts]
        told = [
            *(brief.workload, brief.case, brief.target, brief.provider, brief.params, artifacts),
            *(brief.has_peers, brief.sources),
        ]
        if len(self._briefs) > MAX_PLANS_IN_MEMORY:
            self._briefs.clear()
        known = self._briefs.setdefault(canonical_json(told), brief)
        return known if known.measure == brief.measure else brief


@dataclass(frozen=True)
class Unplanned:
    """A point of a sweep with an invalid config, because of an option of a swept group."""

    swept: Mapping[str, Any]
    error: ConfigError


def plan_points(
    assembly: Assembly,
    overrides: Overrides,
    *,
    without: Iterable[str] = (),
    unplanned: list[Unplanned] | None = None,
    seen: Seen = lambda plan: None,
    refresh: bool = True,
) -> list[Planned]:
    """Every point of the overrides. In a sweep an impossible point is refused and the others
    continue. `unplanned` collects the points with invalid options, unless all are. `seen` receives
    each plan while the others are still to be made. Without `refresh`, templates and compilers are
    as they were for the points planned before."""
    refuse: Refuse | None = None
    multirun = overrides.multirun
    if multirun and unplanned is not None:
        refuse = lambda row, error: unplanned.append(Unplanned(row, error))  # noqa: E731
    if refresh:
        assembly.refresh()
    points = assembly.composer.points(overrides, refuse=refuse)
    plans = plan_each(
        assembly, points, alone=not multirun, without=without, refuse=refuse, seen=seen
    )
    if unplanned and not plans:
        raise unplanned[0].error
    # The first point of a large sweep may be dropped already, and planning it again takes time.
    asked = any(overrides.mentions(key) for key in (*OBSERVATIONS, "experiment"))
    observed = plans[0].experiment.observed if plans and (asked or not multirun) else ""
    if observed and MEASURING & frozenset(without):
        raise UsageError(
            f"nothing is measured here, so there is nothing to look into: {observed}",
            hint="Traces, dependencies and replays are of `kernloom run`.",
        )
    if observed and len(plans) > 1:
        raise UsageError(
            f"{observed} is about one run, but this sweep has {len(plans)} points",
            hint="Give the point on the command line, without -m.",
        )
    if overrides.mentions("screen") and not multirun and plans[0].experiment.screen.keep:
        raise UsageError(
            "screen.keep chooses among the points of a sweep, but this is a single run",
            hint="Add -m to screen the points of a sweep, or leave screen.keep away.",
        )
    return plans


def plan_each(
    assembly: Assembly,
    points: Iterable[Point],
    *,
    alone: bool,
    without: Iterable[str] = (),
    refuse: Refuse | None = None,
    seen: Seen = lambda plan: None,
) -> list[Planned]:
    """Plan the points; `alone` raises an error that would otherwise become a refused trial.
    `refuse` receives the points with invalid options; without it they raise."""
    left_out, memory = frozenset(without), available_memory()
    sweep = PlannedSweep(assembly, left_out, memory, alone=alone)
    planned = []
    for point in points:
        try:
            plan = sweep.plan(point)
            planned.append(plan)
            seen(plan)
        except ConfigError as error:
            if refuse is None or not _is_options_fault(assembly, point):
                raise
            refuse(point.swept, error)
    refusals = [item.refusal for item in planned]
    first = refusals[0] if refusals else None
    if first and len({str(refusal and refusal.error) for refusal in refusals}) == 1:
        raise first.error
    return planned


def _is_options_fault(assembly: Assembly, point: Point) -> bool:
    """Whether the options of a point's swept groups are invalid, whatever its other values."""
    if not assembly.composer.sweeps_groups(point.swept):
        return False
    try:
        alone = validated(assembly.composer.composed_groups(point), assembly.results)
        check_supported(alone)
        fleet_settings(alone.fleet)
        read_graph(alone.pipeline.stages, assembly.stages, assembly.results)
    except ConfigError:
        return True
    return False


def _planned(
    assembly: Assembly, point: Point, without: frozenset[str], memory: int, *, alone: bool
) -> Planned:
    try:
        experiment = validated(point.data, assembly.results)
        check_supported(experiment)
        assembly.results.get(fleet_settings, experiment.fleet)
    except ConfigError as error:
        raise error_at_point(error, point.swept) from None
    stages: Any = experiment.pipeline.stages
    kept = as_section(stages).derive(_without, without)
    plan = Planned(point, experiment, read_graph(kept, assembly.stages, assembly.results))
    try:
        _fill_in(assembly, plan, memory)
    except (ConfigError, UnavailableError) as error:
        if alone:
            raise
        status = "unavailable" if isinstance(error, UnavailableError) else "refused"
        _refuse(plan, Refusal(status, error.stage or "plan", error))
    except (KernloomError, OSError):
        raise
    except Exception as error:
        # Our own bug or a plug-in's, it concerns this point only: the others continue.
        if alone:
            raise
        _refuse(plan, Refusal("refused", "plan", _unforeseen(error)))
    _identify(plan, assembly.results)
    return plan


def _identify(plan: Planned, cache: DigestCache) -> None:
    """Set a plan's id, once all facts that can change its result are known."""
    plan.facts = facts_of(plan, cache)
    plan.sources = sources_of(plan, cache)
    plan.id = identity(plan.facts)


def replanned(plan: Planned, built: Mapping[str, Artifact], cache: DigestCache) -> Planned:
    """The plan with other artifacts in place of those with these keys, and its new id: files
    outside may have changed after it was planned."""
    if not any(artifact.key in built for _, artifact in plan.named_artifacts):
        return plan
    other = replace(plan, outputs=dict(plan.outputs))
    other.exchange(built)
    for name, peer in plan.peers.items():
        if peer.plan:
            beside = replanned(peer.plan, built, cache)
            changed = peer_identity(name, beside, peer.made_of)
            found = replace(peer, plan=beside, identity=changed)
            other.peers = {**other.peers, name: found}
    _identify(other, cache)
    return other


def with_data(plan: Planned, data: OwnData) -> Planned:
    """The plan with inputs and goldens of its own, and an id of its own."""
    return replace(plan, data=data, id=sha256_json([plan.id, data.name])[: len(plan.id)])


def _refuse(plan: Planned, refusal: Refusal) -> None:
    # Its traceback would keep the whole plan alive.
    refusal.error.__traceback__ = refusal.error.__context__ = None
    plan.refusal = refusal
    plan.steps, plan.programs, plan.peers, plan.device_facts = (), {}, {}, {}
    plan.orchestration = None


def _unforeseen(error: Exception) -> KernloomError:
    """An unexpected exception as an error, with its source location."""
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    where = f" ({place.tb_frame.f_code.co_filename}:{place.tb_lineno})" if place else ""
    return KernloomError(f"planning failed: {type(error).__name__}: {error}{where}")


def _without(
    stages: Mapping[str, Mapping[str, Any]], types: frozenset[str]
) -> Mapping[str, Mapping[str, Any]]:
    """The stages without those of some types."""
    return Section(
        {name: stage for name, stage in stages.items() if str(stage.get("use")) not in types}
    )


def _fill_in(assembly: Assembly, plan: Planned, memory: int) -> None:
    experiment = plan.experiment
    target, workload = experiment.target, experiment.workload
    here = assembly.here
    place = (target.digest, experiment.arch.digest, experiment.toolchain.digest)
    built = (target.digest, experiment.arch.compiled.digest, experiment.toolchain.digest)
    where = (*built, experiment.runtime.digest)
    used_by = (*place, digest_of(workload.tensors), workload.dtype)
    here.by_key((Assembly.check_available, *used_by), lambda: assembly.check_available(experiment))
    device = DEVICES.get(target.device, key="target.device")
    plan.device_is_ours = is_ours(device)
    plan.device_facts = here.by_key(
        (Device.facts, target.digest),
        lambda: Section(device.facts(target, cache=assembly.places.cache)),
    )
    plan.files = {
        **data_files(experiment, list(assembly.places.roots), assembly.results),
        **golden_digests(workload, assembly.places.roots, assembly.results),
    }
    if not plan.graph.verifies:
        raise PipelineError(
            "no stage verifies, so nothing would show that the results are right",
            key="pipeline.stages",
            hint="Keep a stage with `use: verify`.",
        )
    context = Context(experiment, {**assembly.planning_services, Point: plan.point})
    plan.graph.run("plan", context, plan.outputs)
    for shaped in plan.graph.of_type("tensors", plan.outputs):
        check_memory(shaped, memory)
    check_goldens(workload, assembly.results, assembly.places.roots)
    plan.code = code_facts(experiment, plan.graph, assembly.places.cache, assembly.results)
    if target.emulator:
        plan.emulator_version = assembly.emulator(target.emulator).version
    placement = here.by_key(
        (placement_of, target.digest, digest_of(workload.tensors)),
        lambda: placement_of(experiment, assembly.places.cache),
    )
    plan.graph.run("build", context, plan.outputs)
    artifacts = plan.graph.of_type("artifacts", plan.outputs)
    plan.steps = tuple(step for found in artifacts for step in found)
    plan.orchestration = _orchestration_of(plan)
    used = _check_tensors(plan, device)
    plan.placement = {name: place for name, place in placement.items() if name in used}
    for outputs in plan.outputs.values():
        if "provenance" in outputs:
            check_applied(outputs, tuple(item.step for item in plan.steps))
    plan.programs = here.by_key((Assembly.programs, *where), lambda: assembly.programs(experiment))
    if experiment.measure.peers and plan.graph.has("metrics"):
        planner = Planner(
            assembly.transforms.keys() - {"parallelize"},
            lambda point: _planned(assembly, point, MEASURING, memory, alone=True),
            assembly.places.cache,
            assembly.results,
        )
        plan.peers = plan_peers(plan, planner)


def _orchestration_of(plan: Planned) -> PlannedOrchestration | None:
    """The orchestration of a plan, if its steps are tasks."""
    found = [one for one in plan.graph.of_type("orchestration", plan.outputs) if one]
    if found:
        return cast(PlannedOrchestration, found[0])
    workload = plan.experiment.workload
    if workload.orchestration or placement_of_tasks(tuple(item.step for item in plan.steps)):
        raise PipelineError(
            f"no stage compiles the orchestration of workload '{workload.name}', which submits its "
            "tasks",
            key="pipeline.stages",
            hint="Keep the stages with `use: distribute` and `use: orchestrate`, as in "
            "pipeline=core.",
        )
    return None


def _check_tensors(plan: Planned, device: type[Device]) -> set[str]:
    """Refuse tensors that do not fit the device's memory; returns those in use: one that was fused
    away takes none."""
    used = {
        str(argument.binding)
        for item in plan.steps
        for argument in item.step.arguments
        if argument.kind == "tensor"
    }
    if plan.orchestration:
        used = {*plan.orchestration.launch.tensors}
    tensors = tensors_of(plan.experiment.workload)
    nbytes = {name: tensor.nbytes for name, tensor in tensors.items() if name in used}
    device.check_tensors(plan.experiment.arch, nbytes)
    return used
