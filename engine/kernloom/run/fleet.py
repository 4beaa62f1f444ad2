"""The contract of a fleet: where the trials of a run are carried out."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kernloom.build.builder import Outcome
from kernloom.build.cores import MeasuredCore
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.sharing import Share


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


class Fleet(Protocol):
    """Carries planned trials out."""

    def at_work(self, plans: Sequence[Planned]) -> AbstractContextManager[None]:
        """Whatever must hold from looking for stored trials to the end of the last one."""

    def trial_ids(self, plans: Sequence[Planned]) -> Mapping[str, str]:
        """Plan id -> the id under which its trial would be stored, where that is known."""

    def execute(
        self, plans: Sequence[Planned], build: TrialBuild, keep: Keep, share: Share | None = None
    ) -> None:
        """Build and carry out every plan; each trial is handed to `keep` as it ends. Trials that
        other engines carry out are left to them, where there is a `share`."""

    @property
    def notes(self) -> list[str]:
        """What to say about it when all is over."""
