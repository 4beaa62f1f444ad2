"""From words to planned trials: every point composed, validated, rendered and keyed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from kernloom.base.errors import (
    ConfigError,
    KernloomError,
    PipelineError,
    UnavailableError,
    UsageError,
)
from kernloom.base.files import canonical_json
from kernloom.base.machine import available_memory
from kernloom.base.remember import ById, Recalled
from kernloom.build.artifact import Artifact
from kernloom.build.stage import StepArtifact
from kernloom.config.compose import Point, Refuse, at_point
from kernloom.config.schema import Experiment, Policy, Target
from kernloom.config.validate import experiment as validated
from kernloom.device.contract import Device
from kernloom.device.devices import DEVICES
from kernloom.measure.data import check_goldens
from kernloom.measure.placement import placement_of
from kernloom.pipeline.graph import StageGraph, read_graph
from kernloom.pipeline.stage import Context
from kernloom.plan.inspect import check_memory, tensors_of
from kernloom.plan.select import check_applied
from kernloom.run.assembly import Assembly
from kernloom.run.baselines import (
    PlannedBaseline,
    Planner,
    baseline_identity,
    plan_baselines,
)
from kernloom.run.facts import code_facts
from kernloom.run.fleets import fleet_settings
from kernloom.run.identity import data_files, identity

MEASURING = frozenset({"measure"})
"""Stage types that a baseline does without: whoever it is compared with measures it."""
_SCREEN = re.compile(r"\+*screen[.=]")
_kept: ById[Mapping[str, Mapping[str, Any]]] = ById()
_available: ById[None] = ById()
_placements: ById[dict[str, str]] = ById()
_programs: ById[dict[str, Artifact]] = ById()
_devices: ById[type[Device]] = ById()
_facts: ById[dict[str, str]] = ById()


@dataclass(frozen=True)
class Refusal:
    """Why a point cannot be carried out."""

    status: str
    stage: str
    error: KernloomError


@dataclass(frozen=True)
class Brief:
    """What is told of a planned point without planning it again."""

    workload: str
    case: str
    target: str
    measure: Policy
    params: Mapping[str, Any]
    provider: str
    artifacts: tuple[tuple[str, Artifact], ...]
    """With the names that a trial knows them by."""


@dataclass
class Planned(Recalled):
    """One point, planned: what it is, what it needs built, and what its stages have found out.

    Of a large sweep, most points keep only what is brief and are planned again when their turn
    comes.
    """

    recalled: ClassVar[tuple[str, ...]] = (
        "experiment",
        "graph",
        "outputs",
        "steps",
        "programs",
        "baselines",
        "placement",
        "device_facts",
        "files",
        "code",
    )

    point: Point
    experiment: Experiment
    graph: StageGraph
    id: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    """Stage -> its outputs so far."""
    steps: tuple[StepArtifact, ...] = field(default_factory=tuple)
    programs: dict[str, Artifact] = field(default_factory=dict)
    """Role -> program that the device needs."""
    baselines: dict[str, PlannedBaseline] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    """Tensor -> copied, in_place or device, for those that are used and say where they are."""
    device_facts: dict[str, str] = field(default_factory=dict)
    """Which device it is, where that is not the machine's class."""
    files: dict[str, str] = field(default_factory=dict)
    """Tensor -> hash of the file that it is filled from."""
    code: dict[str, str] = field(default_factory=dict)
    """Name -> version and hash of code that decides the result: ours, numpy, plug-ins."""
    emulator_version: str = ""
    refusal: Refusal | None = None
    sweep: PlannedSweep | None = field(default=None, repr=False, compare=False)
    """Plans it again."""
    kept: Brief | None = field(default=None, repr=False, compare=False)
    """Of a point that was dropped once."""

    @property
    def brief(self) -> Brief:
        return self.kept or Brief(
            self.experiment.workload.name,
            self.experiment.case,
            self.experiment.target.name,
            self.experiment.measure,
            self._params(),
            self._provider(),
            tuple(self._named_artifacts()),
        )

    def recall(self) -> None:
        if self.sweep is None:
            super().recall()
        else:
            self.sweep.plan_again(self)

    @property
    def artifacts(self) -> list[Artifact]:
        """What must be built for its own kernels, each once."""
        needed = [*(step.artifact for step in self.steps), *self.programs.values()]
        return list({artifact.key: artifact for artifact in needed}.values())

    @property
    def named_artifacts(self) -> Sequence[tuple[str, Artifact]]:
        """All that must be built, with the names that a trial knows it by."""
        return self.kept.artifacts if self.kept else self._named_artifacts()

    def _named_artifacts(self) -> list[tuple[str, Artifact]]:
        own = self.artifacts
        keys = {artifact.key for artifact in own}
        rest = {
            artifact.key: (f"{name}/{artifact.name}", artifact)
            for name, baseline in self.baselines.items()
            if baseline.plan
            for artifact in baseline.plan.artifacts
            if artifact.key not in keys
        }
        return [*((artifact.name, artifact) for artifact in own), *rest.values()]

    def exchange(self, others: Mapping[str, Artifact]) -> None:
        """Put other artifacts in the place of those with these keys."""
        if not others:
            return
        self.sweep = self.kept = None  # planned again, it would have the old ones
        self.steps = tuple(
            replace(step, artifact=others.get(step.artifact.key, step.artifact))
            for step in self.steps
        )
        for name, node in self.graph.nodes.items():
            if "artifacts" in node.stage.outputs and name in self.outputs:
                self.outputs[name] = {**self.outputs[name], "artifacts": self.steps}

        self.programs = {role: others.get(p.key, p) for role, p in self.programs.items()}

    @property
    def params(self) -> Mapping[str, Any]:
        """Transform -> step -> tunable -> value, as the stages applied them."""
        return self.kept.params if self.kept else self._params()

    def _params(self) -> dict[str, Any]:
        applied = {item.step.name: item.step.decisions for item in self.steps}
        found: dict[str, Any] = {}
        chosen = self.graph.of_type("choices", self.outputs)
        for transform, steps in (pair for choices in chosen for pair in choices.items()):
            for step in steps:
                if step in applied:
                    group = applied[step].get(transform, {})
                    values = {name: group[name] for name in steps[step] if name in group}
                else:
                    # Fused into another step: only that was decided about it.
                    values = steps[step] if transform == "fuse" else {}
                if values:
                    found.setdefault(transform, {})[step] = values
        return found

    @property
    def provider(self) -> str:
        return self.kept.provider if self.kept else self._provider()

    def _provider(self) -> str:
        return "+".join(dict.fromkeys(self.graph.of_type("provider", self.outputs)))


KEPT = 2_000
"""How many points of a sweep are kept with all that planning found out about them."""


class PlannedSweep:
    """Plans points, and drops what it found out about the oldest where there are many."""

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
        """Most points of a sweep have the same one."""

    def plan(self, point: Point) -> Planned:
        plan = self._planned(point)
        if point.again is not None:
            plan.sweep = self
            self._keep(plan)
        return plan

    def plan_again(self, plan: Planned) -> None:
        """Set what was dropped of a plan."""
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
        """The same sweep with each of its plans changed."""
        other = PlannedSweep(self._assembly, self._without, self._memory, alone=self._alone)
        other._change = change
        return other

    def take(self, plan: Planned) -> Planned:
        """A plan of the sweep that this one varies, changed."""
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
        self._whole.append(plan)
        if len(self._whole) <= KEPT:
            return
        oldest = self._whole.popleft()
        if oldest.sweep is None:
            return
        if oldest.kept is None:
            oldest.kept = self._shared(oldest.brief)
        oldest.drop()
        oldest.point.drop()

    def _shared(self, brief: Brief) -> Brief:
        artifacts = [artifact.key for _, artifact in brief.artifacts]
        told = [brief.workload, brief.case, brief.target, brief.provider, brief.params, artifacts]
        if len(self._briefs) > KEPT:
            self._briefs.clear()
        known = self._briefs.setdefault(canonical_json(told), brief)
        return known if known.measure == brief.measure else brief


@dataclass(frozen=True)
class Unplanned:
    """A point of a sweep whose config is wrong, by the fault of an option of a swept group."""

    swept: Mapping[str, Any]
    error: ConfigError


def plan_points(
    assembly: Assembly,
    words: Sequence[str],
    *,
    multirun: bool,
    without: Iterable[str] = (),
    unplanned: list[Unplanned] | None = None,
) -> list[Planned]:
    """Every point of the words. In a sweep a point that cannot be is refused; the others go on.
    With `unplanned`, that gets the points whose options are wrong, unless all are."""
    refuse: Refuse | None = None
    if multirun and unplanned is not None:
        refuse = lambda row, error: unplanned.append(Unplanned(row, error))  # noqa: E731
    points = assembly.composer.points(words, multirun=multirun, refuse=refuse)
    plans = plan_each(assembly, points, alone=not multirun, without=without, refuse=refuse)
    if unplanned and not plans:
        raise unplanned[0].error
    asked = any(_SCREEN.match(word) for word in words)
    if asked and not multirun and plans[0].experiment.screen.keep:
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
) -> list[Planned]:
    """The points, planned; `alone` raises what would otherwise be a refused trial among others.
    `refuse` gets the points whose options are wrong; without it they raise."""
    left_out, memory = frozenset(without), available_memory()
    sweep = PlannedSweep(assembly, left_out, memory, alone=alone)
    planned = []
    for point in points:
        try:
            planned.append(sweep.plan(point))
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
    """Whether the options of groups that a point sweeps are wrong, whatever its other values."""
    if not assembly.composer.sweeps_groups(point.swept):
        return False
    try:
        alone = validated(assembly.composer.groups_alone(point))
        fleet_settings(alone.fleet)
        read_graph(alone.pipeline.stages, assembly.stages)
    except ConfigError:
        return True
    return False


def _planned(
    assembly: Assembly, point: Point, without: frozenset[str], memory: int, *, alone: bool
) -> Planned:
    try:
        experiment = validated(point.data)
        fleet_settings(experiment.fleet)
    except ConfigError as error:
        raise at_point(error, point.swept) from None
    stages = experiment.pipeline.stages
    kept = _kept.get(_without, stages, without)
    plan = Planned(point, experiment, read_graph(kept, assembly.stages))
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
        # Ours or a plug-in's, it is this point's fault: the others go on.
        if alone:
            raise
        _refuse(plan, Refusal("refused", "plan", _unforeseen(error)))
    plan.id = identity(plan)
    return plan


def replanned(plan: Planned, built: Mapping[str, Artifact]) -> Planned:
    """The plan with other artifacts in the place of those with these keys, and the id it then has:
    files outside may have changed after it was planned."""
    if not any(artifact.key in built for _, artifact in plan.named_artifacts):
        return plan
    other = replace(plan, outputs=dict(plan.outputs))
    other.exchange(built)
    for name, baseline in plan.baselines.items():
        if baseline.plan:
            beside = replanned(baseline.plan, built)
            changed = baseline_identity(name, beside, baseline.made_of)
            found = replace(baseline, plan=beside, identity=changed)
            other.baselines = {**other.baselines, name: found}
    other.id = identity(other)
    return other


def _refuse(plan: Planned, refusal: Refusal) -> None:
    # Its traceback would keep all that was planned.
    refusal.error.__traceback__ = refusal.error.__context__ = None
    plan.refusal = refusal
    plan.steps, plan.programs, plan.baselines, plan.device_facts = (), {}, {}, {}


def _unforeseen(error: Exception) -> KernloomError:
    """What nobody has worded for people, with the place it comes from."""
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    where = f" ({place.tb_frame.f_code.co_filename}:{place.tb_lineno})" if place else ""
    return KernloomError(f"planning failed: {type(error).__name__}: {error}{where}")


def _without(
    stages: Mapping[str, Mapping[str, Any]], types: frozenset[str]
) -> Mapping[str, Mapping[str, Any]]:
    """The stages less those of some types."""
    return {name: stage for name, stage in stages.items() if str(stage.get("use")) not in types}


def _fill_in(assembly: Assembly, plan: Planned, memory: int) -> None:
    experiment = plan.experiment
    target, arch, toolchain = experiment.target, experiment.arch, experiment.toolchain
    tensors = experiment.workload.tensors
    _available.get(
        lambda *_: assembly.check_available(experiment),
        *(assembly, target, arch, toolchain, tensors, experiment.workload.dtype),
    )
    plan.device_facts = _device_facts(assembly, plan)
    plan.files = data_files(assembly, experiment)
    if not plan.graph.verifies:
        raise PipelineError(
            "no stage verifies, so nothing would show that the results are right",
            key="pipeline.stages",
            hint="Keep a stage with `use: verify`.",
        )
    context = Context(experiment, assembly.planning_services)
    plan.graph.run("plan", context, plan.outputs)
    for shaped in plan.graph.of_type("tensors", plan.outputs):
        check_memory(shaped, memory)
    check_goldens(experiment.workload)
    plan.code = code_facts(experiment, plan.graph, assembly.places.cache)
    if target.emulator:
        plan.emulator_version = assembly.emulator(target.emulator).version
    placement = _placements.get(
        lambda *_: placement_of(experiment, assembly.places.cache), assembly, target, tensors
    )
    plan.graph.run("build", context, plan.outputs)
    artifacts = plan.graph.of_type("artifacts", plan.outputs)
    plan.steps = tuple(step for found in artifacts for step in found)
    used = _check_tensors(plan)
    plan.placement = {name: place for name, place in placement.items() if name in used}
    for outputs in plan.outputs.values():
        if "provenance" in outputs:
            check_applied(outputs, tuple(item.step for item in plan.steps))
    plan.programs = _programs.get(
        lambda *_: assembly.programs(experiment), assembly, target, arch, toolchain
    )
    if experiment.measure.baselines and plan.graph.has("metrics"):
        planner = Planner(
            assembly.transforms.keys() - {"parallelize"},
            lambda point: _planned(assembly, point, MEASURING, memory, alone=True),
            assembly.places.cache,
        )
        plan.baselines = plan_baselines(plan, planner)


def _check_tensors(plan: Planned) -> set[str]:
    """Refuse what does not fit the device's memory; the tensors that are used: one that was fused
    away needs none."""
    target, arch = plan.experiment.target, plan.experiment.arch
    used = {
        str(argument.binding)
        for item in plan.steps
        for argument in item.step.arguments
        if argument.kind == "tensor"
    }
    tensors = tensors_of(plan.experiment.workload)
    nbytes = {name: tensor.nbytes for name, tensor in tensors.items() if name in used}
    _device(target).check_tensors(arch, nbytes)
    return used


def _device(target: Target) -> type[Device]:
    return _devices.get(lambda _: DEVICES.get(target.device, key="target.device"), target)


def _device_facts(assembly: Assembly, plan: Planned) -> dict[str, str]:
    target = plan.experiment.target
    return _facts.get(
        lambda *_: _device(target).facts(target, cache=assembly.places.cache), assembly, target
    )
