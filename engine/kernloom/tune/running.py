"""Runs a study from overrides to its outcome: search, race, and verification of the winner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernloom.config.overrides import Overrides
from kernloom.measure.trial import Trial
from kernloom.run.assembly import Assembly
from kernloom.run.early import EarlyStart
from kernloom.run.execution import Execution
from kernloom.run.fleet import FleetSetup
from kernloom.run.fleets import create_fleet, fleet_kind
from kernloom.run.progress import Progress
from kernloom.run.stores import store_of
from kernloom.store.store import Store
from kernloom.tune.document import Outcome
from kernloom.tune.effects import check_effects
from kernloom.tune.known_points import KnownPoints
from kernloom.tune.objective import objectives_of
from kernloom.tune.planning import StudyPlan, plan_study
from kernloom.tune.racing import RaceTrack, not_raced
from kernloom.tune.study import Study, StudyProgress
from kernloom.tune.winner import Make, Verified, verified_cases, verified_winner

Ended = Callable[[Trial], None]


@dataclass(frozen=True)
class StudyRun:
    """One study with the parts of the engine that it uses."""

    assembly: Assembly
    plan: StudyPlan
    store: Store
    progress: Progress
    ended: Ended = lambda trial: None

    def run(self) -> Outcome:
        plan, search = self.plan, self.plan.search
        check_effects(plan)
        objectives = objectives_of(search.objective)
        tables = plan.study.space.tables
        limits = [search.trials, tables.total if tables else None]
        total = min((one for one in limits if one is not None), default=None)
        progress = StudyProgress(self.progress, total)
        EarlyStart(self.assembly)(plan.base)
        setup = FleetSetup(self.assembly, self.store, progress, measured_again=True)
        fleet = create_fleet(plan.experiment.fleet, setup)
        execution = Execution(
            *(self.assembly, self.store, progress, fleet, self.ended),
            expects_more=self._here,
            beside_builds=True,
        )
        known = KnownPoints(plan, self.store, fleet)
        history = Study(plan, objectives, execution, known, progress).run()
        race = not_raced(plan, objectives, history)
        verified: Verified | None = None
        if not history.interrupted and not history.failure:
            setup = FleetSetup(self.assembly, self.store, self.progress, "racing")
            racers = Execution(
                self.assembly,
                self.store,
                self.progress,
                create_fleet(plan.experiment.fleet, setup),
                self.ended,
            )

            def samples_of(trial: Trial):  # type: ignore[no-untyped-def]
                return trial.samples or self.store.samples(trial.id)

            race = RaceTrack(plan, objectives, racers, samples_of).race(history)
            if race.best and not race.ended_early:
                race, verified = verified_winner(
                    plan, race, self._verifying, measured=not self._here
                )
        return Outcome(plan, objectives, history, race, verified)

    def problem(self, make: Make) -> str:
        """What is wrong with parameters on the cases of the workload; empty if they verify."""
        found = verified_cases(self.plan, make, self._verifying(), measured=not self._here)
        if found.interrupted:
            raise KeyboardInterrupt
        if found.failure:
            raise found.failure
        return "; ".join(f"{one.status} on case {one.case}" for one in found.wrong)

    @property
    def _here(self) -> bool:
        return fleet_kind(self.plan.experiment.fleet).on_this_machine

    def _verifying(self) -> Execution:
        """Verifies on this machine without storing, or as trials of another fleet."""
        setup = FleetSetup(self.assembly, self.store, self.progress, "verifying")
        fleet = create_fleet(self.plan.experiment.fleet, setup)
        store = None if self._here else self.store
        return Execution(self.assembly, store, self.progress, fleet)


def run_study(
    assembly: Assembly, overrides: Overrides, progress: Progress, ended: Ended = lambda trial: None
) -> Outcome:
    """Plan and run a study; its trials are stored as they end."""
    plan = plan_study(assembly, overrides)
    with store_of(assembly, plan.experiment) as store:
        return StudyRun(assembly, plan, store, progress, ended).run()
