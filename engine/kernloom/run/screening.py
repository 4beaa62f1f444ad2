"""Screening: a quick measurement of every point of a sweep, to select the best for full
measurement.

Kernels are compiled in batches, verified, and measured in one process each. Screening results are
stored, so that a repeated command screens nothing twice, but they are no trials: whatever is stored
as a trial or written to a recipe is built alone.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kernloom.base.files import canonical_json, sha256_text
from kernloom.base.gauges import Gauge, ranking_gauge
from kernloom.build.admission import Admissions
from kernloom.build.batch import batches, with_outside_files_of
from kernloom.build.builder import Builder, Outcome
from kernloom.build.cores import MeasuredCore
from kernloom.config.schema import Policy
from kernloom.measure.ranking import ranked
from kernloom.measure.statistics import median
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import Artifact
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.execution import lasting, once_each
from kernloom.run.fleet import Fleet
from kernloom.run.progress import Progress
from kernloom.run.trials import trial_of
from kernloom.store.claims import Claims
from kernloom.store.store import Store

SAMPLES, WARMUP, MIN_SAMPLE_US = 7, 1, 200.0
"""One warm-up run, because the verified run was in the same process."""
KEPT_EVERY_S = 0.5
"""Commit interval: a kill loses this much screening, which is cheap, unlike a commit per point."""


@dataclass(frozen=True)
class Screening:
    """Screening results of all points, and the points selected for full measurement."""

    trials: tuple[Trial, ...] = ()
    """In the order of the points; none of them is a result."""
    kept: frozenset[str] = frozenset()
    """Ids of those to measure in full."""
    known: int = 0
    """Number of points screened before."""
    batches: int = 0
    """Number of batches: libraries of several kernels."""
    seconds: float = 0.0
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Number of points by status, for those that did not verify."""
    interrupted: bool = False

    @property
    def text(self) -> str:
        """`screened 197 points in 8 batches, 4.1 s: best 0.82 ms, median 1.2 ms; 59 refused`."""
        from kernloom.base.units import count, time_text

        words = [f"screened {count(len(self.trials), 'point')}"]
        if self.batches:
            words[0] += " in 1 batch" if self.batches == 1 else f" in {self.batches} batches"
        words[0] += f", {time_text(self.seconds * 1e9)}"
        if bests := [_spread(gauge, values) for gauge, values in self._values().items()]:
            words[0] += f": {', '.join(bests)}"
        if self.known:
            words.append(f"{self.known} screened before")
        words += [f"{number} {status}" for status, number in self.statuses.items()]
        words.append(f"measured in full: {len(self.kept)}")
        return "; ".join(words)

    def _values(self) -> dict[Gauge, list[float]]:
        """Ranking values of the points that verified."""
        found: dict[Gauge, list[float]] = {}
        for trial in self.trials:
            if trial.good and (gauge := ranking_gauge(trial.metrics)):
                found.setdefault(gauge, []).append(trial.metrics[gauge.name])
        return found


def _spread(gauge: Gauge, values: Sequence[float]) -> str:
    """`best 0.82 ms, median 1.2 ms`."""
    return f"best {gauge.with_label(gauge.best(values))}, median {gauge.with_label(median(values))}"


def screen(
    assembly: Assembly,
    plans: Sequence[Planned],
    store: Store,
    fleet: Fleet,
    progress: Progress,
    ended: Callable[[Trial], None] = lambda trial: None,
) -> Screening:
    """Have a fleet screen all points of a sweep, whose settings say how many to keep. Ctrl-C ends
    it early.

    `ended` receives each screening result, those of earlier runs first.
    """
    start = time.monotonic()
    experiment = plans[0].experiment
    quick = plans[0].sweep.varied(_quick) if plans[0].sweep else None
    quick_plans = {
        plan.id: quick.take(plan) if quick else _quick(plan) for plan in once_each(plans)
    }
    with closing(store.claims()) as claims:
        if experiment.rerun != "all":
            _claim(claims, list(quick_plans.values()), progress)
        return _screened(assembly, quick_plans, store, fleet, progress, ended, start)


def _claim(claims: Claims, quick_plans: Sequence[Planned], progress: Progress) -> None:
    """Wait for another engine that screens the same points: its results are then known, and both
    keep the same points."""
    name = f"screening {sha256_text(canonical_json(sorted(map(_screening_id, quick_plans))))}"
    if not claims.take(name):
        progress.say("waiting: another Kernloom screens the same points")
        claims.wait(name)


def _screened(
    assembly: Assembly,
    quick_plans: Mapping[str, Planned],
    store: Store,
    fleet: Fleet,
    progress: Progress,
    ended: Callable[[Trial], None],
    start: float,
) -> Screening:
    experiment = next(iter(quick_plans.values())).experiment
    builder = assembly.builder(experiment)
    building = _ScreeningBuild(
        builder, list(quick_plans.values()), experiment.screen.batch, progress
    )
    found = _known(store, list(quick_plans.values()))
    known = len(found)
    for trial in found.values():
        ended(trial)

    new: dict[str, Trial] = {}
    kept = time.monotonic()

    def keep(plan: Planned, trial: Trial, *, stored: bool = False) -> None:
        nonlocal kept
        found[plan.id] = replace(trial, id=plan.id)
        # Another id means that files outside changed after planning: the result is for another
        # plan.
        if plan.refusal is None and trial.id == plan.id:
            new[_screening_id(plan)] = trial
        progress.ended(trial)
        ended(trial)
        if time.monotonic() - kept > KEPT_EVERY_S:
            store.save_screenings(new)
            new.clear()
            kept = time.monotonic()

    interrupted = False
    try:
        waiting = [plan for id, plan in quick_plans.items() if id not in found]
        fleet.execute(waiting, building, keep)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.clear()
        store.save_screenings(new)
    ordered = tuple(found[id] for id in quick_plans if id in found)
    best = (trial for group in ranked(ordered) for trial in group[: experiment.screen.keep])
    return Screening(
        trials=ordered,
        kept=frozenset() if interrupted else frozenset(trial.id for trial in best),
        known=known,
        batches=building.batches,
        seconds=round(time.monotonic() - start, 3),
        statuses=Counter(trial.status for trial in ordered if not trial.good),
        interrupted=interrupted,
    )


def _screening_id(plan: Planned) -> str:
    """The identity of a screening result: the trial's, plus the conditions of the screening."""
    experiment = plan.experiment
    limits = [experiment.timeout, experiment.memory_limit]
    return sha256_text(canonical_json([plan.id, vars(experiment.measure), limits]))[:16]


def _known(store: Store, quick_plans: Sequence[Planned]) -> dict[str, Trial]:
    """Earlier screening results, and trials that failed and would fail again."""
    again = {
        plan.id: plan for plan in quick_plans if plan.experiment.rerun != "all" and not plan.refusal
    }
    kept = store.screenings([_screening_id(plan) for plan in again.values()])
    failed = store.latest(again)
    found: dict[str, Trial] = {}
    for id, plan in again.items():
        if stored := kept.get(_screening_id(plan)):
            found[id] = trial_of(plan, {}, datetime.now(UTC), **stored)
        elif id in failed and not failed[id].good:
            found[id] = replace(failed[id], point=plan.point.swept)
    return {
        id: trial
        for id, trial in found.items()
        if lasting(trial, again[id]) and (trial.good or again[id].experiment.rerun == "none")
    }


def _quick(plan: Planned) -> Planned:
    """The plan with the quick policy instead of its own, and without peers."""
    experiment = plan.experiment
    return replace(
        plan,
        experiment=replace(experiment, measure=_policy(experiment.measure)),
        peers={},
        # Its original sweep would plan it again with its own policy.
        sweep=None,
        kept=None,
    )


def _policy(policy: Policy) -> Policy:
    """One process and a few samples, under the conditions of the full policy."""
    return replace(
        policy,
        samples=min(policy.samples, SAMPLES),
        warmup=min(policy.warmup, WARMUP),
        min_sample_us=min(policy.min_sample_us, MIN_SAMPLE_US),
        min_rounds=1,
        max_rounds=1,
        bound=0.0,
        span_s=0.0,
        drift=0.0,
        peers=(),
    )


class _ScreeningBuild:
    """Builds the kernels of a screening in batches.

    Batches depend on the sweep alone, not on what is built already, so that a resumed screening
    finds its batches.
    """

    def __init__(
        self, builder: Builder, plans: Sequence[Planned], size: int, progress: Progress
    ) -> None:
        self._builder = builder
        self._progress = progress
        self._artifacts = {item.key: item for plan in plans for item in plan.artifacts}
        joined = batches(self._artifacts.values(), size, jobs=os.cpu_count() or 1)
        self._batches = {batch.artifact.key: batch for batch in joined}
        self._batch_of = {key: batch for batch in joined for key in batch.entries}
        allowed = [set(plan.experiment.workload.allow) for plan in plans]
        self._allow = tuple(sorted(set.intersection(*allowed))) if allowed else ()
        """The imports that the workloads of all plans allow."""
        self._admissions = Admissions()
        self.batches = 0
        """Number of batches wanted."""

    def __call__(self, plans: Sequence[Planned]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        for found in self._made(
            plans, lambda done, total: self._progress.update("building", done, total)
        ):
            outcomes |= found
        return outcomes

    def as_built(
        self, plans: Sequence[Planned], measured: MeasuredCore
    ) -> Generator[Mapping[str, Outcome], None, None]:
        return self._made(plans, None, measured)

    def _made(
        self,
        plans: Sequence[Planned],
        tell: Callable[[int, int], None] | None,
        measured: MeasuredCore | None = None,
    ) -> Generator[Mapping[str, Outcome], None, None]:
        wanted = {item.key: item for plan in plans for item in plan.artifacts}
        joined = {key: self._batch_of[key] for key in wanted if key in self._batch_of}
        together = {batch.artifact.key: batch.artifact for batch in joined.values()}
        alone = [item for key, item in wanted.items() if key not in joined]
        self.batches = len(together)
        failed: list[Artifact] = []
        built = False
        building = self._builder.as_built([*together.values(), *alone], tell, measured=measured)
        with closing(building):
            for outcomes in building:
                failed += self._failed(outcomes)
                built = built or not all(outcome.cached for outcome in outcomes.values())
                yield self._members(outcomes)
        if failed:
            # A kernel that does not compile must not exclude the others.
            split = [item for item in failed if item.key in wanted]
            yield from self._builder.as_built(split, tell, measured=measured)
        if built and measured:
            # The best are built next, alone.
            self._builder.prepare()

    def _failed(self, outcomes: Mapping[str, Outcome]) -> list[Artifact]:
        """The kernels of batches that failed to compile, or contain what no kernel may."""
        bad = [
            self._batches[k]
            for k, found in outcomes.items()
            if k in self._batches and not self._is_good(found)
        ]
        return [self._artifacts[key] for batch in bad for key in batch.entries]

    def _is_good(self, batch: Outcome) -> bool:
        """Whether all kernels of a batch can be used from it; one alone could be refused."""
        return batch.ok and not self._admissions.reasons(batch.artifact, batch.path, self._allow)

    def _members(self, outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """The outcome of a batch, as outcomes of its kernels."""
        members: dict[str, Outcome] = {}
        for key, outcome in outcomes.items():
            if key not in self._batches:
                members[key] = outcome
            elif self._is_good(outcome):
                members |= {
                    member: replace(
                        outcome,
                        artifact=with_outside_files_of(outcome.artifact, self._artifacts[member]),
                        entry=entry,
                    )
                    for member, entry in self._batches[key].entries.items()
                }
        return members
