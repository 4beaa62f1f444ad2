"""The plan of a point: what it is, what it needs built, what its stages have found out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from kernloom.base.digest import Section
from kernloom.base.errors import KernloomError
from kernloom.base.recalled import Recalled
from kernloom.config.compose import Point
from kernloom.config.schema import Experiment, Policy
from kernloom.pipeline.graph import StageGraph
from kernloom.plan.artifact import Artifact
from kernloom.plan.schedule import StepRecord


@dataclass(frozen=True)
class StepArtifact:
    """A step and the library that carries it out."""

    step: StepRecord
    artifact: Artifact


@dataclass(frozen=True)
class PlannedBaseline:
    """One baseline of a trial, planned: from sources of its own, or by numpy."""

    identity: str
    """Equal for the trials of a sweep that can share it."""
    plan: Planned | None = None
    libraries: tuple[Path, ...] = ()
    """Loaded before its kernels, which take symbols from them."""
    made_of: tuple[str, ...] = ()
    """What identifies the libraries."""


Groups = Mapping[str, Mapping[str, Any]]
SHARED = "shared"


@dataclass(frozen=True)
class Facts:
    """The facts of a trial: group -> name -> value, plain data.

    Groups are called after the part of the config they come from, where there is one.
    """

    shared: Section[Mapping[str, Any]] = field(default_factory=Section)
    """What most points of a sweep have in common, as the very same object."""
    own: Groups = field(default_factory=dict)

    def groups(self) -> dict[str, Mapping[str, Any]]:
        return {**self.shared, **self.own}

    def document(self) -> dict[str, Any]:
        """As it is stored: what is shared once, in one piece."""
        return {SHARED: self.shared, **self.own}


def groups_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The groups of a stored document."""
    own = {group: found for group, found in document.items() if group != SHARED}
    return {**document.get(SHARED, {}), **own}


class Replanner(Protocol):
    """Plans the points of a sweep, and plans those again of which it dropped the details."""

    def plan_again(self, plan: Planned) -> None:
        """Set what was dropped of a plan."""

    def varied(self, change: Callable[[Planned], Planned]) -> Replanner:
        """The same sweep with each of its plans changed."""

    def take(self, plan: Planned) -> Planned:
        """A plan of the sweep that this one varies, changed."""


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
    sources: Mapping[str, Mapping[str, str]]
    has_baselines: bool


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
    """Stage -> its outputs so far."""
    steps: tuple[StepArtifact, ...] = field(default_factory=tuple)
    programs: Mapping[str, Artifact] = field(default_factory=dict)
    """Role -> program that the device needs."""
    baselines: dict[str, PlannedBaseline] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    """Tensor -> copied, in_place or device, for those that are used and say where they are."""
    device_facts: Mapping[str, str] = field(default_factory=dict)
    """Which device it is, where that is not the machine's class."""
    device_is_ours: bool = field(default_factory=lambda: True)
    """Not of another package, which may look at any part of the target and the arch."""
    files: dict[str, str] = field(default_factory=dict)
    """Tensor -> hash of the file that it is filled from."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Name -> version and hash of code that decides the result: ours, numpy, plug-ins."""
    facts: Facts = field(default_factory=Facts)
    """What its id is the hash of; empty before it has one."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Kernel and family of sources -> path -> hash of each file that it was rendered from."""
    emulator_version: str = ""
    refusal: Refusal | None = None
    sweep: Replanner | None = field(default=None, repr=False, compare=False)
    """Plans it again."""
    kept: Brief | None = field(default=None, repr=False, compare=False)
    """Of a point of a sweep, whose details may be dropped; most points share one."""

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
            bool(self.baselines),
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
