"""Carries out planned trials: reuses what is stored, builds the union once, stores each that ends.

Where they are carried out is the fleet's matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernloom.build.builder import Builder, Outcome
from kernloom.cli.assembly import Assembly
from kernloom.cli.fleets import Fleet
from kernloom.cli.fleets.local import Local
from kernloom.cli.planning import Planned
from kernloom.cli.progress import Progress
from kernloom.cli.screening import Screening
from kernloom.cli.trials import ENGINE_FULL
from kernloom.config.schema import Fleet as FleetSettings
from kernloom.measure.trial import Trial
from kernloom.store.store import Store

REUSABLE = ("ok", "wrong", "crashed", "timeout", "out_of_bounds", "unconverged")
"""Statuses that say something about the trial itself; the others depend on the day."""
FROM_OUTSIDE = "SIGKILL"
"""A crash that somebody else caused, most often for lack of memory."""


@dataclass(frozen=True)
class BuildSummary:
    """What building took."""

    built: int = 0
    cached: int = 0
    failed: int = 0
    seconds: float = 0.0
    scons: int = 0
    """How often SCons was started."""


@dataclass
class Results:
    """The trials of a run in the order of their points, and what was built for them."""

    trials: list[Trial] = field(default_factory=list)
    build: BuildSummary = field(default_factory=BuildSummary)
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    """What else to say when all is over."""
    screening: Screening | None = None
    """What decided which points these are the trials of."""


class Workshop:
    """Has planned trials carried out by a fleet, by default this machine, and keeps them."""

    def __init__(
        self,
        assembly: Assembly,
        store: Store | None,
        progress: Progress,
        fleet: Fleet | None = None,
        ended: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        """`ended` is told of each trial of a run as soon as it is one, stored ones first."""
        self._assembly = assembly
        self._store = store
        self._progress = progress
        self._fleet = fleet or Local(assembly, progress, FleetSettings("local"))
        self._ended = ended
        self._made: Builder | None = None

    def carry_out(self, plans: Sequence[Planned]) -> Results:
        """All trials. Ctrl-C ends it early; what is finished is kept and returned."""
        results = Results()
        known: dict[str, Trial] = {}
        reused: list[Planned] = []
        again: list[Trial] = []
        waiting: list[Planned] = []
        outcomes: dict[str, Outcome] = {}

        def build(waiting: Sequence[Planned]) -> Mapping[str, Outcome]:
            outcomes.update(self._build(waiting, outcomes, results))
            return dict(outcomes)

        def keep(plan: Planned, trial: Trial, *, stored: bool = False) -> None:
            if self._store and not stored:
                self._store.add(trial)
            known[plan.id] = trial
            self._progress.ended(trial)
            self._ended(trial)

        try:
            with self._fleet.at_work(plans):
                known |= self._stored(plans)
                reused += [plan for plan in plans if plan.id in known]
                for plan in reused:
                    again.append(self._reused(known[plan.id], plan))
                    self._ended(again[-1])
                if self._store:
                    self._store.count_reuses(trial.id for trial in again)
                waiting += {plan.id: plan for plan in plans if plan.id not in known}.values()
                self._fleet.carry_out(waiting, build, keep)
        except KeyboardInterrupt:
            results.interrupted = True
        finally:
            self._progress.clear()
        results.notes = self._fleet.notes
        self._count_spared(reused, outcomes, results)
        if not outcomes:
            self._count_elsewhere([known[p.id] for p in waiting if p.id in known], results)
        carried_out = {plan.id for plan in waiting}
        stored = dict(zip(map(id, reused), again, strict=False))
        results.trials = self._in_order(plans, known, stored, carried_out)
        return results

    def _in_order(
        self,
        plans: Sequence[Planned],
        known: Mapping[str, Trial],
        reused: Mapping[int, Trial],
        fresh: set[str],
    ) -> list[Trial]:
        """The trials in the order of their points; `reused` by the identity of the plan."""
        trials: list[Trial] = []
        for plan in plans:
            if id(plan) in reused:
                trials.append(reused[id(plan)])
            elif plan.id in known and plan.id in fresh:
                trials.append(known[plan.id])
                fresh.remove(plan.id)
            elif plan.id in known:
                # The same trial at another point.
                trials.append(self._reused(known[plan.id], plan))
                self._ended(trials[-1])
        return trials

    def _stored(self, plans: Sequence[Planned]) -> dict[str, Trial]:
        """Trials that need not be carried out again."""
        if not self._store or not plans:
            return {}
        ids = self._fleet.trial_ids(plans)
        wanted = {
            plan.id: (ids[plan.id], plan.experiment.rerun)
            for plan in plans
            if plan.experiment.rerun != "all" and plan.refusal is None and plan.id in ids
        }
        found = self._store.latest([key for key, _ in wanted.values()])
        return {
            plan: found[key]
            for plan, (key, rerun) in wanted.items()
            if key in found
            and _lasting(found[key])
            and (rerun == "none" or found[key].status == "ok")
        }

    def _reused(self, trial: Trial, plan: Planned) -> Trial:
        """A stored trial as one of this run; whether its artifacts are still there is looked up."""
        artifacts = tuple(
            {"name": name, "key": item.key, "cached": self._builder(plan).state(item).cached}
            for name, item in plan.named_artifacts
        )
        trial = replace(trial, point=plan.point.swept, artifacts=artifacts, reused=True)
        return self._with_roof(trial, plan)

    def _with_roof(self, trial: Trial, plan: Planned) -> Trial:
        """A trial held against the roof as it is known now."""
        metrics = trial.metrics
        if not trial.good or "median_ns" not in metrics:
            return trial
        roofs = self._assembly.roofs
        found = roofs.fraction(plan.experiment, plan.steps, metrics["median_ns"])
        if found is None:
            return trial
        return replace(
            trial,
            metrics={**metrics, "roof_fraction": found[0]},
            conditions={**trial.conditions, "roof": found[1]},
        )

    def _count_spared(
        self, reused: Sequence[Planned], outcomes: Mapping[str, Outcome], results: Results
    ) -> None:
        """Count the artifacts that stored trials have and nobody had to build."""
        spared = {item.key: (plan, item) for plan in reused for _, item in plan.named_artifacts}
        there = sum(
            self._builder(plan).state(item).cached
            for key, (plan, item) in spared.items()
            if key not in outcomes
        )
        results.build = replace(results.build, cached=results.build.cached + there)

    def _count_elsewhere(self, trials: Sequence[Trial], results: Results) -> None:
        """Count what was built where the trials were carried out."""
        cached: dict[str, bool] = {}
        for item in (item for trial in trials for item in trial.artifacts):
            cached[item["key"]] = item["cached"] and cached.get(item["key"], True)
        there = sum(cached.values())
        results.build = replace(
            results.build,
            built=results.build.built + len(cached) - there,
            cached=results.build.cached + there,
        )

    def _builder(self, plan: Planned) -> Builder:
        if self._made is None:
            self._made = self._assembly.builder(plan.experiment)
        return self._made

    def _build(
        self, plans: Sequence[Planned], done: Mapping[str, Outcome], results: Results
    ) -> dict[str, Outcome]:
        """Everything that any of the trials needs and that is not done yet, in one go."""
        needed = {item.key: item for plan in plans for _, item in plan.named_artifacts}
        artifacts = {key: item for key, item in needed.items() if key not in done}
        if not artifacts:
            return {}
        builder = self._builder(plans[0])
        start = time.monotonic()
        outcomes = builder.build(
            artifacts.values(),
            lambda done, total: self._progress.update("building", done, total),
        )
        self._progress.clear()
        built = sum(not outcome.cached and outcome.ok for outcome in outcomes.values())
        failed = sum(not outcome.ok for outcome in outcomes.values())
        before = results.build
        results.build = BuildSummary(
            built=before.built + built,
            cached=before.cached + sum(outcome.cached for outcome in outcomes.values()),
            failed=before.failed + failed,
            seconds=round(before.seconds + time.monotonic() - start, 3),
            scons=before.scons + int(built + failed > 0),
        )
        return outcomes


def _lasting(trial: Trial) -> bool:
    """Whether a stored trial would end the same way if it were carried out again."""
    by_kill = trial.status == "crashed" and FROM_OUTSIDE in trial.message
    if trial.status == "out_of_memory":
        # Without a limit that the config names it is how much was free on that day.
        return trial.config.get("memory_limit") is not None and trial.message != ENGINE_FULL
    return trial.status in REUSABLE and not by_kill


def exit_code(trials: Sequence[Trial], *, interrupted: bool = False) -> int:
    """0 only if everything verified; 3 if all that failed was not available here."""
    if interrupted:
        return 130
    bad = [trial for trial in trials if not trial.good]
    if not bad:
        return 0
    return 3 if all(trial.status == "unavailable" for trial in bad) else 1
