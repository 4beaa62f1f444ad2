"""Carries out planned trials: reuses what is stored, builds the union once, runs, stores each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernloom.build.builder import Builder, Outcome
from kernloom.cli.assembly import Assembly
from kernloom.cli.planning import Planned
from kernloom.cli.progress import Progress
from kernloom.cli.trials import Trials
from kernloom.measure.trial import Trial
from kernloom.measure.turns import blocks
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


class Workshop:
    """Builds planned trials and carries them out, those of a sweep in turns."""

    def __init__(self, assembly: Assembly, store: Store | None, progress: Progress) -> None:
        self._assembly = assembly
        self._store = store
        self._progress = progress
        self._made: Builder | None = None

    def carry_out(self, plans: Sequence[Planned]) -> Results:
        """All trials. Ctrl-C ends it early; what is finished is kept and returned."""
        results = Results()
        known: dict[str, Trial] = {}
        try:
            known |= self._stored(plans)
            reused = [plan for plan in plans if plan.id in known]
            waiting = list({plan.id: plan for plan in plans if plan.id not in known}.values())
            outcomes = self._build(waiting, results)
            self._count_spared(reused, outcomes, results)
            self._measure(waiting, outcomes, known)
        except KeyboardInterrupt:
            results.interrupted = True
        finally:
            self._progress.clear()
        fresh = {plan.id for plan in plans} - {plan.id for plan in reused}
        for plan in plans:
            if plan.id in fresh and plan.id in known:
                results.trials.append(known[plan.id])
                fresh.remove(plan.id)
            elif plan.id in known:
                results.trials.append(self._reused(known[plan.id], plan))
        return results

    def _measure(
        self, plans: Sequence[Planned], outcomes: Mapping[str, Outcome], known: dict[str, Trial]
    ) -> None:
        """Carry trials out in turns, as many together as the policy says, and store each."""
        if not plans:
            return
        trials = Trials(self._assembly, outcomes)
        before = len(known)
        for block in _blocks(plans):
            in_rounds = block[0].experiment.measure.max_rounds > 1

            def turn(round: int, in_rounds: bool = in_rounds) -> None:
                phase = f"measuring, round {round}:" if in_rounds else "measuring"
                self._progress.update(phase, len(known) - before, len(plans))

            for plan, trial in trials.in_turns(block, turn):
                if self._store:
                    self._store.add(trial)
                known[plan.id] = trial

    def _stored(self, plans: Sequence[Planned]) -> dict[str, Trial]:
        """Trials that need not be carried out again."""
        if not self._store or not plans:
            return {}
        wanted = [
            plan.id for plan in plans if plan.experiment.rerun != "all" and plan.refusal is None
        ]
        found = self._store.latest(wanted)
        rerun = {plan.id: plan.experiment.rerun for plan in plans}
        return {
            key: trial
            for key, trial in found.items()
            if _lasting(trial) and (rerun[key] == "none" or trial.status == "ok")
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

    def _builder(self, plan: Planned) -> Builder:
        if self._made is None:
            self._made = self._assembly.builder(plan.experiment)
        return self._made

    def _build(self, plans: Sequence[Planned], results: Results) -> dict[str, Outcome]:
        """Everything that any of the trials needs, in one go."""
        artifacts = {item.key: item for plan in plans for _, item in plan.named_artifacts}
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
        results.build = BuildSummary(
            built=built,
            cached=sum(outcome.cached for outcome in outcomes.values()),
            failed=failed,
            seconds=round(time.monotonic() - start, 3),
            scons=int(built + failed > 0),
        )
        return outcomes


def _blocks(plans: Sequence[Planned]) -> Iterator[Sequence[Planned]]:
    """Trials that share their rounds: of one policy, and no more than it says."""
    by_policy: dict[Any, list[Planned]] = {}
    for plan in plans:
        by_policy.setdefault(plan.experiment.measure, []).append(plan)
    for policy, same in by_policy.items():
        yield from blocks(same, policy.together)


def _lasting(trial: Trial) -> bool:
    """Whether a stored trial would end the same way if it were carried out again."""
    by_kill = trial.status == "crashed" and FROM_OUTSIDE in trial.message
    return trial.status in REUSABLE and not by_kill


def exit_code(trials: Sequence[Trial], *, interrupted: bool = False) -> int:
    """0 only if everything verified; 3 if all that failed was not available here."""
    if interrupted:
        return 130
    bad = [trial for trial in trials if not trial.good]
    if not bad:
        return 0
    return 3 if all(trial.status == "unavailable" for trial in bad) else 1
