"""The plan of a point: its identity, its artifacts, and the outputs of its stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from kernloom.base.digest import Section
from kernloom.base.errors import KernloomError
from kernloom.base.recalled import Recalled
from kernloom.config.compose import Point
from kernloom.config.renamed import with_current_keys
from kernloom.config.schema import Experiment, Policy
from kernloom.pipeline.graph import StageGraph
from kernloom.plan.artifact import Artifact
from kernloom.plan.orchestration import Launch
from kernloom.plan.schedule import StepRecord


@dataclass(frozen=True)
class StepArtifact:
    """A step and the library that executes it."""

    step: StepRecord
    artifact: Artifact


@dataclass(frozen=True)
class PlannedOrchestration:
    """The library that submits the tasks of a workload, and what it is launched with."""

    artifact: Artifact
    launch: Launch


@dataclass(frozen=True)
class PlannedPeer:
    """One planned peer of a trial: its own sources, or numpy."""

    identity: str
    """Equal for trials of a sweep that can share the peer."""
    plan: Planned | None = None
    libraries: tuple[Path, ...] = ()
    """Libraries loaded before its kernels, to provide symbols."""
    made_of: tuple[str, ...] = ()
    """Identity of the libraries."""


class OwnData(Protocol):
    """Inputs and goldens of one trial, in place of those that its workload describes."""

    name: str
    """Unique among the trials of a run."""


Groups = Mapping[str, Mapping[str, Any]]
SHARED = "shared"


@dataclass(frozen=True)
class Facts:
    """The facts of a trial: group -> name -> value, plain data.

    Groups have the name of their config section where there is one.
    """

    shared: Section[Mapping[str, Any]] = field(default_factory=Section)
    """Facts that most points of a sweep share, as one object."""
    own: Groups = field(default_factory=dict)

    def groups(self) -> dict[str, Mapping[str, Any]]:
        return {**self.shared, **self.own}

    def document(self) -> dict[str, Any]:
        """The facts as stored, with the shared ones in one part."""
        return {SHARED: self.shared, **self.own}


def groups_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The groups of a stored document."""
    own = {group: found for group, found in document.items() if group != SHARED}
    return {**with_current_keys(document.get(SHARED, {})), **own}


class Replanner(Protocol):
    """Plans the points of a sweep, and plans a point again after its details were dropped."""

    def plan_again(self, plan: Planned) -> None:
        """Set the dropped attributes of a plan."""

    def varied(self, change: Callable[[Planned], Planned]) -> Replanner:
        """The same sweep with a change applied to each plan."""

    def take(self, plan: Planned) -> Planned:
        """A plan of the original sweep, with the change applied."""


@dataclass(frozen=True)
class Refusal:
    """The reason why a point cannot be executed."""

    status: str
    stage: str
    error: KernloomError


@dataclass(frozen=True)
class Brief:
    """Summary of a planned point, kept so that it need not be planned again."""

    workload: str
    case: str
    target: str
    measure: Policy
    params: Mapping[str, Any]
    provider: str
    artifacts: tuple[tuple[str, Artifact], ...]
    """Name in the trial -> artifact, as pairs."""
    sources: Mapping[str, Mapping[str, str]]
    has_peers: bool


@dataclass
class Planned(Recalled):
    """One planned point: its identity, its artifacts, and the outputs of its stages.

    Most points of a large sweep keep only their `Brief`, and are planned again before they run.
    """

    recalled: ClassVar[tuple[str, ...]] = (
        "experiment",
        "graph",
        "outputs",
        "steps",
        "orchestration",
        "programs",
        "peers",
        "placement",
        "device_facts",
        "device_is_ours",
        "files",
        "code",
        "facts",
        "sources",
    )

    point: Point
    experiment: Experiment
    graph: StageGraph
    id: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    """Stage -> outputs so far."""
    steps: tuple[StepArtifact, ...] = field(default_factory=tuple)
    orchestration: PlannedOrchestration | None = field(default_factory=lambda: None)
    """None if the steps are called one after the other."""
    programs: Mapping[str, Artifact] = field(default_factory=dict)
    """Role -> program that the device needs."""
    peers: dict[str, PlannedPeer] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    """Tensor -> copied, in_place or device, for used tensors with a stated place."""
    device_facts: Mapping[str, str] = field(default_factory=dict)
    """Identity of the device, where the machine's class does not cover it."""
    device_is_ours: bool = field(default_factory=lambda: True)
    """False for another package's device, which may use any part of the target and the arch."""
    files: dict[str, str] = field(default_factory=dict)
    """Tensor -> hash of the file that fills it."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Name -> version and hash of code that affects the result: Kernloom, numpy, plug-ins."""
    facts: Facts = field(default_factory=Facts)
    """Facts whose hash is the trial's id; empty before planning is complete."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`kernel:family` -> path -> hash of each source file."""
    emulator_version: str = ""
    refusal: Refusal | None = None
    data: OwnData | None = field(default=None, repr=False, compare=False)
    """Given by a program; such a trial is not stored."""
    sweep: Replanner | None = field(default=None, repr=False, compare=False)
    """Plans the point again."""
    kept: Brief | None = field(default=None, repr=False, compare=False)
    """Summary of a point of a sweep, whose details may be dropped; most points share one."""

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
            self.sources,
            bool(self.peers),
        )

    def recall(self) -> None:
        if self.sweep is None:
            super().recall()
        else:
            self.sweep.plan_again(self)

    @property
    def artifacts(self) -> list[Artifact]:
        """Artifacts of the point's own kernels and orchestration, without duplicates."""
        tasks = [self.orchestration.artifact] if self.orchestration else []
        needed = [*(step.artifact for step in self.steps), *tasks, *self.programs.values()]
        return list({artifact.key: artifact for artifact in needed}.values())

    @property
    def named_artifacts(self) -> Sequence[tuple[str, Artifact]]:
        """All artifacts to build, with their names in the trial."""
        return self.kept.artifacts if self.kept else self._named_artifacts()

    def _named_artifacts(self) -> list[tuple[str, Artifact]]:
        own = self.artifacts
        keys = {artifact.key for artifact in own}
        rest = {
            artifact.key: (f"{name}/{artifact.name}", artifact)
            for name, peer in self.peers.items()
            if peer.plan
            for artifact in peer.plan.artifacts
            if artifact.key not in keys
        }
        return [*((artifact.name, artifact) for artifact in own), *rest.values()]

    def exchange(self, others: Mapping[str, Artifact]) -> None:
        """Replace the artifacts with these keys by others."""
        if not others:
            return
        self.sweep = self.kept = None  # planning again would restore the old artifacts
        self.steps = tuple(
            replace(step, artifact=others.get(step.artifact.key, step.artifact))
            for step in self.steps
        )
        if self.orchestration:
            artifact = self.orchestration.artifact
            self.orchestration = replace(
                self.orchestration, artifact=others.get(artifact.key, artifact)
            )
        for name, node in self.graph.nodes.items():
            if "artifacts" in node.stage.outputs and name in self.outputs:
                self.outputs[name] = {**self.outputs[name], "artifacts": self.steps}

        self.programs = {role: others.get(p.key, p) for role, p in self.programs.items()}

    @property
    def params(self) -> Mapping[str, Any]:
        """Transform -> step -> tunable -> value, as applied by the stages."""
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
                    # A fused step has no decisions except `fuse`.
                    values = steps[step] if transform == "fuse" else {}
                if values:
                    found.setdefault(transform, {})[step] = values
        return found

    @property
    def provider(self) -> str:
        return self.kept.provider if self.kept else self._provider()

    def _provider(self) -> str:
        return "+".join(dict.fromkeys(self.graph.of_type("provider", self.outputs)))
