"""The contract of a fleet: where the trials of a run are carried out."""

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
    """Takes a trial that has ended; it is on disk when this returns."""

    def __call__(self, plan: Planned, trial: Trial, *, stored: bool = False) -> None: ...


class TrialBuild(Protocol):
    """Builds what trials need, each artifact once; by key, how it went."""

    def __call__(self, plans: Sequence[Planned]) -> Mapping[str, Outcome]: ...

    def as_built(
        self, plans: Sequence[Planned], measured: MeasuredCore
    ) -> Generator[Mapping[str, Outcome], None, None]:
        """What is there first, and then the rest as it is built, while others are measured."""


@dataclass(frozen=True)
class FleetSetup:
    """The parts of the engine that a fleet works with."""

    assembly: Assembly
    store: Store
    progress: Progress
    phase: str = "measuring"
    """What progress calls the work: `screening`, for instance."""


class Fleet(ABC):
    """Carries planned trials out. A subclass declares its settings and defines `execute`."""

    Settings: ClassVar[type[FleetSettings]]
    """The schema of the section `fleet` of a config that chooses this kind."""
    on_this_machine: ClassVar[bool] = False
    """Trials are carried out by this process, so they belong to this machine. Commands that work
    here and now (check, compare, screening) refuse any other fleet."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """What to say about it when all is over."""

    @classmethod
    @abstractmethod
    def create(cls, settings: Any, setup: FleetSetup) -> Self:
        """The fleet with the `Settings` of an experiment."""

    def at_work(self, plans: Sequence[Planned]) -> AbstractContextManager[None]:
        """Whatever must hold from looking for stored trials to the end of the last one."""
        return nullcontext()

    def trial_ids(self, plans: Sequence[Planned]) -> Mapping[str, str]:
        """Plan id -> the id under which its trial would be stored, where that is known."""
        return {plan.id: plan.id for plan in plans}

    @abstractmethod
    def execute(
        self, plans: Sequence[Planned], build: TrialBuild, keep: Keep, share: Share | None = None
    ) -> None:
        """Build and carry out every plan; each trial is handed to `keep` as it ends. Trials that
        other engines carry out are left to them, where there is a `share`."""
