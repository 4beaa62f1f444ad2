"""Executes planned trials: reuses cache hits, builds each missing artifact once, stores each trial
as it ends.

A fleet decides where they run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kernloom.base.errors import UnavailableError
from kernloom.base.expressions import parse_size
from kernloom.base.gauges import ROOF_FRACTION, TIME
from kernloom.base.spool import Reordered, Spool
from kernloom.base.units import count
from kernloom.build.builder import Builder, Outcome
from kernloom.build.cores import MeasuredCore
from kernloom.build.workspace import sweep
from kernloom.config.sweeps import POINT
from kernloom.measure.trial import Trial
from kernloom.measure.turns import blocks
from kernloom.plan.artifact import Artifact
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.attempts import with_attempts
from kernloom.run.fleet import BESIDE_BUILDS, Fleet, Keep
from kernloom.run.plan_conditions import with_plan_conditions
from kernloom.run.progress import Progress
from kernloom.run.sharing import Share, Sharing
from kernloom.run.trials import MEMORY_LEFT, OUT_OF_MEMORY_MESSAGE
from kernloom.store.lookups import CHUNK
from kernloom.store.store import Store

if TYPE_CHECKING:
    from kernloom.measure.roofs import Roofs
    from kernloom.run.screening import Screening

REUSABLE = ("ok", "wrong", "crashed", "out_of_bounds", "unconverged")
"""Statuses that are properties of the trial itself; the others depend on circumstances."""
FROM_OUTSIDE = "SIGKILL"
"""A crash with a cause outside, most often lack of memory."""


MAX_ARTIFACTS_PER_BUILD = 5_000
"""Limit of artifacts per run of SCons, which holds all of their sources in memory."""


@dataclass(frozen=True)
class BuildSummary:
    """Counts and time of a build."""

    built: int = 0
    cached: int = 0
    failed: int = 0
    seconds: float = 0.0
    scons: int = 0
    """Number of times SCons was started."""

    def plus(self, other: BuildSummary) -> BuildSummary:
        """Both builds as one."""
        return BuildSummary(
            self.built + other.built,
            self.cached + other.cached,
            self.failed + other.failed,
            round(self.seconds + other.seconds, 3),
            self.scons + other.scons,
        )


@dataclass
class Results:
    """The trials of a run in the order of their points, and what was built for them."""

    trials: Sequence[Trial] = ()
    build: BuildSummary = field(default_factory=BuildSummary)
    interrupted: bool = False
    failure: UnavailableError | None = None
    """Why the store can no longer be reached; the trials listed here are stored."""
    notes: list[str] = field(default_factory=list)
    """Notes to print at the end."""
    screening: Screening | None = None
    """The screening that selected the points of these trials."""


class Building:
    """The artifacts built for a run so far, each once, and the time taken."""

    def __init__(
        self,
        builder: Callable[[Planned], Builder],
        progress: Progress,
        *,
        expects_more: bool = False,
    ) -> None:
        """`expects_more`: more is likely to be built after this run."""
        self._builder = builder
        self._expects_more = expects_more
        self._progress = progress
        self.outcomes: dict[str, Outcome] = {}
        self.summary = BuildSummary()

    def __call__(self, plans: Sequence[Planned]) -> Mapping[str, Outcome]:
        needed = self._needed(plans)
        for start in range(0, len(needed), MAX_ARTIFACTS_PER_BUILD):
            tell = partial(self._tell, start, len(needed))
            began = time.monotonic()
            made = self._builder(plans[0]).build(
                needed[start : start + MAX_ARTIFACTS_PER_BUILD], tell
            )
            self._progress.clear()
            self._count(made, time.monotonic() - began)
        self._prepare(plans)
        return dict(self.outcomes)

    def _tell(self, before: int, needed: int, done: int, _: int) -> None:
        self._progress.update("building", before + done, needed)

    def as_built(
        self, plans: Sequence[Planned], measured: MeasuredCore
    ) -> Generator[Mapping[str, Outcome], None, None]:
        needed = self._needed(plans)
        if not needed:
            yield dict(self.outcomes)
            return
        start = time.monotonic()
        made: dict[str, Outcome] = {}
        building = self._builder(plans[0]).as_built(needed, measured=measured)
        try:
            with closing(building):
                for number, found in enumerate(building):
                    made |= found
                    yield found if number else {**self.outcomes, **found}
        finally:
            self._count(made, time.monotonic() - start)
        self._prepare(plans)

    def _prepare(self, plans: Sequence[Planned]) -> None:
        """Start what the next build needs, while the last trials of this one are measured."""
        if self._expects_more and self.summary.scons:
            self._builder(plans[0]).prepare()

    def _needed(self, plans: Sequence[Planned]) -> list[Artifact]:
        """All artifacts that any of the trials needs and that are not built yet."""
        needed = {item.key: item for plan in plans for _, item in plan.named_artifacts}
        return [item for key, item in needed.items() if key not in self.outcomes]

    def _count(self, made: Mapping[str, Outcome], seconds: float) -> None:
        self.outcomes |= made
        built = sum(not outcome.cached and outcome.ok for outcome in made.values())
        failed = sum(not outcome.ok for outcome in made.values())
        before = self.summary
        self.summary = BuildSummary(
            built=before.built + built,
            cached=before.cached + sum(outcome.cached for outcome in made.values()),
            failed=before.failed + failed,
            seconds=round(before.seconds + seconds, 3),
            scons=before.scons + int(built + failed > 0),
        )


class Execution:
    """Has a fleet run planned trials, and stores them."""

    def __init__(
        self,
        assembly: Assembly,
        store: Store | None,
        progress: Progress,
        fleet: Fleet,
        ended: Callable[[Trial], None] = lambda trial: None,
        *,
        expects_more: bool = False,
        beside_builds: bool = False,
    ) -> None:
        """`ended` receives each trial of a run as soon as it is known, cache hits first.
        `expects_more`: other runs are likely to follow, with more to build. `beside_builds`: trials
        that were measured while others were built are cache hits, too."""
        self._assembly = assembly
        self._store = store
        self._progress = progress
        self._fleet = fleet
        self._ended = ended
        self._expects_more = expects_more
        self._beside_builds = beside_builds
        self._made: Builder | None = None
        self._there: dict[str, bool] = {}
        """Artifact -> whether it is built, as checked for cache hits of this run."""

    def execute(self, plans: Sequence[Planned]) -> Results:
        """All trials. Ctrl-C, or a store that can no longer be reached, ends it early; finished
        trials are stored and returned."""
        results = Results()
        self._there.clear()
        ended: Spool[Trial] = Spool()
        places: dict[str, int] = {}
        """Plan id -> index of its trial among those that have ended."""
        own = once_each(plans)
        names = _names(plans)
        reused: list[Planned] = []
        waiting: list[Planned] = []
        state: object = None
        attempts: dict[str, int] = {}
        building = Building(self._builder, self._progress, expects_more=self._expects_more)

        def keep(plan: Planned, trial: Trial, *, stored: bool = False) -> None:
            if self._store and not stored:
                named = names.get(plan.id)
                try:
                    trial = with_attempts(trial, plan.brief.measure.drift, self._store)
                    self._store.add(replace(trial, point=named) if named else trial)
                except UnavailableError as error:
                    results.failure = error
                    raise
            self._progress.ended(trial)
            self._ended(trial)
            # The rest is in the store.
            ended.append(replace(trial, samples=(), facts={}) if self._store else trial)
            places[plan.id] = len(ended) - 1

        try:
            with self._fleet.at_work(plans):
                if self._store:
                    # Before the lookup: trials that others store from now on are newer.
                    state = self._store.state()
                    sources: dict[str, Mapping[str, Mapping[str, str]]] = {}
                    for plan, trial in stored_trials(self._store, self._fleet, own):
                        attempts[plan.id] = trial.attempt
                        if not reusable(trial, plan, beside_builds=self._beside_builds):
                            continue
                        reused.append(plan)
                        sources[trial.id] = plan.brief.sources
                        ended.append(self._reused(trial, plan))
                        places[plan.id] = len(ended) - 1
                        self._ended(ended[-1])
                    self._store.count_reuses(sources, sources)
                if reused:
                    used = (item for plan in reused for _, item in plan.named_artifacts)
                    self._builder(reused[0]).note_uses(used)
                waiting += [plan for plan in own if plan.id not in places]
                with self._shared(waiting, keep, state, attempts) as share:
                    self._fleet.execute(waiting, building, keep, share)
                if not waiting:
                    # A build or measurement does this by itself.
                    sweep(self._assembly.places.build)
        except KeyboardInterrupt:
            results.interrupted = True
        except UnavailableError as error:
            if error is not results.failure or not ended:
                raise
        finally:
            self._progress.clear()
        results.notes = self._fleet.notes
        results.build = building.summary
        self._count_spared(reused, building.outcomes, results)
        if not building.outcomes:
            carried_out = [places[plan.id] for plan in waiting if plan.id in places]
            self._count_elsewhere(Reordered(ended, carried_out), results)
        results.trials = self._in_order(plans, ended, places)
        return results

    @contextmanager
    def _shared(
        self,
        plans: Sequence[Planned],
        keep: Keep,
        start: object,
        before: Mapping[str, int],
    ) -> Iterator[Share | None]:
        """Leaves trials to other engines that are running them; None without a store to read them
        from afterwards, or if every engine must measure by itself.

        `start` and `before` are the state of the store, and its number of attempts per plan, at the
        start of this run.
        """
        store = self._store
        experiment = plans[0].experiment if plans else None
        if store is None or experiment is None or experiment.rerun == "all" or experiment.observed:
            yield None
            return

        def stored(claimed: Sequence[Planned]) -> dict[str, Trial]:
            if not claimed or store.state() == start:
                return {}
            found = store.latest(plan.id for plan in claimed)
            return {
                plan.id: trial
                for plan in claimed
                if (trial := found.get(plan.id))
                and trial.attempt > before.get(plan.id, 0)
                and as_good(trial, plan)
            }

        def take(plan: Planned, trial: Trial) -> None:
            keep(plan, self._reused(trial, plan), stored=True)
            store.count_reuses([trial.id])

        def tell(number: int) -> None:
            self._progress.say(f"waiting: another Kernloom carries out {count(number, 'trial')}")

        with closing(store.claims()) as claims:
            yield Sharing(claims, stored, take, tell)

    def _in_order(
        self, plans: Sequence[Planned], ended: Spool[Trial], places: Mapping[str, int]
    ) -> Sequence[Trial]:
        """The trials in the order of their points, including those that are the same at several
        points."""
        ordered: list[int] = []
        seen: set[str] = set()
        for plan in plans:
            if plan.id not in places:
                continue
            place = places[plan.id]
            if plan.id in seen:
                twin = replace(ended[place], point=plan.point.swept, same=True)
                self._ended(twin)
                place = len(ended)
                ended.append(twin)
            seen.add(plan.id)
            ordered.append(place)
        return Reordered(ended, ordered)

    def _reused(self, trial: Trial, plan: Planned) -> Trial:
        """A cache hit as a trial of this run; checks whether its artifacts still exist."""
        artifacts = tuple(
            {"name": name, "key": item.key, "cached": self._is_there(plan, item)}
            for name, item in plan.named_artifacts
        )
        trial = replace(
            trial,
            point=plan.point.swept,
            # Another provider may have chosen equal kernels.
            params=plan.params,
            provider=plan.provider,
            artifacts=artifacts,
            # Descriptions may have changed; the arch is that of the machine that measured.
            config={**plan.point.data, "arch": trial.config.get("arch", plan.point.data["arch"])},
            overrides=plan.point.words,
            conditions=with_plan_conditions(trial.conditions, plan),
            reused=True,
        )
        return with_roof(self._assembly.roofs, trial, plan)

    def _count_spared(
        self, reused: Sequence[Planned], outcomes: Mapping[str, Outcome], results: Results
    ) -> None:
        """Count the artifacts of cache hits that needed no build."""
        spared = {item.key: (plan, item) for plan in reused for _, item in plan.named_artifacts}
        there = sum(
            self._is_there(plan, item)
            for key, (plan, item) in spared.items()
            if key not in outcomes
        )
        results.build = replace(results.build, cached=results.build.cached + there)

    def _count_elsewhere(self, trials: Sequence[Trial], results: Results) -> None:
        """Count what was built where the trials ran."""
        cached: dict[str, bool] = {}
        for item in (item for trial in trials for item in trial.artifacts):
            cached[item["key"]] = item["cached"] and cached.get(item["key"], True)
        there = sum(cached.values())
        results.build = replace(
            results.build,
            built=results.build.built + len(cached) - there,
            cached=results.build.cached + there,
        )

    def _is_there(self, plan: Planned, artifact: Artifact) -> bool:
        """Whether an artifact needs no build; checked once, because many trials may share it."""
        if artifact.key not in self._there:
            self._there[artifact.key] = self._builder(plan).state(artifact).cached
        return self._there[artifact.key]

    def _builder(self, plan: Planned) -> Builder:
        if self._made is None:
            self._made = self._assembly.builder(plan.experiment)
        return self._made


def with_roof(roofs: Roofs, trial: Trial, plan: Planned) -> Trial:
    """A stored trial compared with the roof as it is known now."""
    metrics = trial.metrics
    if not trial.good or TIME.name not in metrics:
        return trial
    if doubt := roofs.doubt(plan.experiment, plan.steps, metrics):
        return replace(trial, status="suspicious", message=doubt)
    if roofs.calibration is None:
        return trial
    found = roofs.fraction(plan.experiment, plan.steps, metrics[TIME.name])
    if found is None:
        return trial
    return replace(
        trial,
        metrics={**metrics, ROOF_FRACTION.name: found[0]},
        conditions={**trial.conditions, "roof": found[1]},
    )


def once_each(plans: Sequence[Planned]) -> list[Planned]:
    """The first of all plans that are the same trial."""
    first: dict[str, Planned] = {}
    for plan in plans:
        first.setdefault(plan.id, plan)
    return list(first.values())


def _names(plans: Sequence[Planned]) -> dict[str, Mapping[str, Any]]:
    """Plan id -> its named point: the store finds a trial by that name, although a point without
    one may come first."""
    named: dict[str, Mapping[str, Any]] = {}
    for plan in plans:
        if POINT in plan.point.swept:
            named.setdefault(plan.id, plan.point.swept)
    return named


def stored_trials(
    store: Store, fleet: Fleet, plans: Sequence[Planned]
) -> Iterator[tuple[Planned, Trial]]:
    """The plans with a stored trial, each with the newest one."""
    # `rerun` applies to the whole run.
    if not plans or plans[0].experiment.rerun == "all":
        return
    ids = fleet.trial_ids(plans)
    wanted = [plan for plan in plans if plan.refusal is None and plan.id in ids]
    for some in blocks(wanted, CHUNK):
        found = store.latest([ids[plan.id] for plan in some])
        for plan in some:
            if trial := found.get(ids[plan.id]):
                yield plan, trial


def reusable(trial: Trial, plan: Planned, *, beside_builds: bool = False) -> bool:
    """Whether a stored trial is a cache hit for the plan; `beside_builds`: also one that was
    measured while others were built."""
    if plan.experiment.observed:
        return False  # what is seen of a run is not stored
    if trial.conditions.get(BESIDE_BUILDS) and not beside_builds:
        return False
    return lasting(trial, plan) and (plan.experiment.rerun == "none" or trial.status == "ok")


def lasting(trial: Trial, plan: Planned) -> bool:
    """Whether a stored trial would end the same way if it ran now.

    Limits do not make trials different: a trial within a limit is valid under every other, and one
    that hit a limit may do better only if the limit is raised.
    """
    if trial.status == "timeout":
        return bool(trial.config.get("timeout", 0.0) >= plan.experiment.timeout)
    if trial.status == "out_of_memory":
        # If the machine had less memory than the configured limit, or none is configured, the limit
        # is what was free at that time.
        experiment = plan.experiment
        limit = trial.config.get("memory_limit")
        if (
            limit is None
            or experiment.memory_limit is None
            or trial.message == OUT_OF_MEMORY_MESSAGE
        ):
            return False
        had = parse_size(limit, key="memory_limit")
        now = parse_size(experiment.memory_limit, key="memory_limit")
        return now <= had <= int(trial.conditions.get(MEMORY_LEFT, 0))
    by_kill = trial.status == "crashed" and FROM_OUTSIDE in trial.message
    return trial.status in REUSABLE and not by_kill


def as_good(trial: Trial, plan: Planned) -> bool:
    """Whether a trial that another engine has just run is as good as our own."""
    depends = ("timeout", "out_of_memory", "interrupted")
    by_kill = trial.status == "crashed" and FROM_OUTSIDE in trial.message
    return lasting(trial, plan) or not (trial.status in depends or by_kill)


def exit_code(trials: Iterable[Trial], *, interrupted: bool = False, failed: bool = False) -> int:
    """0 only if everything verified; 3 if all failures were unavailable targets or tools."""
    if interrupted:
        return 130
    if failed:
        return 1
    bad = {trial.status for trial in trials if not trial.good}
    if not bad:
        return 0
    return 3 if bad == {"unavailable"} else 1
