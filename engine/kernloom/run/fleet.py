"""The contract of a fleet: the place where the trials of a run are executed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from kernloom.config.settings import FleetSettings

if TYPE_CHECKING:
    from kernloom.build.builder import Outcome
    from kernloom.build.cores import MeasuredCore
    from kernloom.measure.trial import Trial
    from kernloom.plan.planned import Planned
    from kernloom.run.assembly import Assembly
    from kernloom.run.progress import Progress
    from kernloom.run.sharing import Share
    from kernloom.store.store import Store


class Keep(Protocol):
    """Receives a trial that has ended; it is on disk when this returns."""

    def __call__(self, plan: Planned, trial: Trial, *, stored: bool = False) -> None: ...


class TrialBuild(Protocol):
    """Builds the artifacts of trials, each once; returns the outcomes by key."""

    def __call__(self, plans: Sequence[Planned]) -> Mapping[str, Outcome]: ...

    def as_built(
        self, plans: Sequence[Planned], measured: MeasuredCore
    ) -> Generator[Mapping[str, Outcome], None, None]:
        """Existing artifacts first, at once and before anything is built; then the rest as it is
        built, while others are measured."""


SCREENING = "screening"
BESIDE_BUILDS = "beside_builds"
"""Condition of a trial that a study measured while compilers ran on other cores: enough to choose
the leaders, which are measured again, and no result for anybody else."""


@dataclass(frozen=True)
class FleetSetup:
    """The parts of the engine that a fleet uses."""

    assembly: Assembly
    store: Store
    progress: Progress
    phase: str = "measuring"
    """The phase that progress shows: `measuring`, or `screening`, whose results are no trials."""
    measured_again: bool = False
    """Whether only the order of the trials counts, because the best are measured again."""


class Fleet(ABC):
    """Runs planned trials. A subclass declares its settings and defines `execute`."""

    Settings: ClassVar[type[FleetSettings]]
    """The schema of a config's section `fleet` for this kind."""
    on_this_machine: ClassVar[bool] = False
    """Whether trials run in this process and therefore belong to this machine. Commands that work
    here and now (check, compare, screening) refuse any other fleet."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """Notes to print at the end."""

    @classmethod
    @abstractmethod
    def create(cls, settings: Any, setup: FleetSetup) -> Self:
        """The fleet with the `Settings` of an experiment."""

    def at_work(self, plans: Sequence[Planned]) -> AbstractContextManager[None]:
        """Context that must hold from the lookup of stored trials to the end of the last one."""
        return nullcontext()

    def trial_ids(self, plans: Sequence[Planned]) -> Mapping[str, str]:
        """Plan id -> the id under which its trial would be stored, where known."""
        return {plan.id: plan.id for plan in plans}

    @abstractmethod
    def execute(
        self, plans: Sequence[Planned], build: TrialBuild, keep: Keep, share: Share | None = None
    ) -> None:
        """Build and run every plan; `keep` receives each trial as it ends. With a `share`, trials
        that other engines run are left to them."""
