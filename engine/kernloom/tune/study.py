"""A study: points are suggested, built and measured in batches until a budget ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kernloom.base.errors import KernloomError
from kernloom.base.gauges import ROOF_FRACTION
from kernloom.base.units import count
from kernloom.config.overrides import Override
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.execution import BuildSummary, Execution, Results
from kernloom.tune.guarded import GuardedStrategy
from kernloom.tune.known_points import KnownPoints, Similar
from kernloom.tune.limits import Limits
from kernloom.tune.objective import Objective
from kernloom.tune.planning import StudyPlan, planned_points
from kernloom.tune.scalars import Scalars
from kernloom.tune.strategy import DEFAULT, Search
from kernloom.tune.tunables import Point

Origin = Literal["model", "given", "similar", "search"]
PER_CORE = 4
"""Points per core that are built together."""


@dataclass(frozen=True)
class Evaluated:
    """A point of the study, its trial, and what it costs by each objective."""

    point: Point
    trial: Trial
    costs: tuple[float, ...] | None
    """None if the point failed."""
    origin: Origin
    source: str = ""
    """For a point of origin `similar`: the trial it is taken from."""
    known: bool = False
    """Whether it was stored before the study, or by another engine meanwhile."""
    plan: Planned | None = field(default=None, compare=False, repr=False)


@dataclass
class History:
    """The points evaluated so far, in order."""

    all: list[Evaluated] = field(default_factory=list)
    build: BuildSummary = field(default_factory=BuildSummary)
    seconds: float = 0.0
    ended: str = ""
    """Why the search ended."""
    notes: list[str] = field(default_factory=list)
    similar: tuple[Similar, ...] = ()
    """Where the first points come from."""
    interrupted: bool = False
    failure: KernloomError | None = None
    """The error that ended the search; the points before it are listed."""

    @property
    def good(self) -> list[Evaluated]:
        return [one for one in self.all if one.costs is not None]

    def best(self, by: int = 0) -> Evaluated | None:
        """The best point by one objective, the first of equals."""
        good = self.good
        return min(good, key=lambda one: one.costs[by]) if good else None  # type: ignore[index]

    @property
    def known(self) -> int:
        """Number of points that were evaluated before or elsewhere."""
        return sum(one.known for one in self.all)


class Study:
    """Searches a planned study; `execution` makes the trials and stores each as it ends."""

    def __init__(
        self,
        plan: StudyPlan,
        objectives: Sequence[Objective],
        execution: Execution,
        known: KnownPoints,
        progress: StudyProgress,
    ) -> None:
        self.plan = plan
        self.objectives = tuple(objectives)
        self.history = History()
        self._execution = execution
        self._known = known
        self._progress = progress
        self._limits = Limits(plan.search.limit, plan.experiment.timeout)
        self._scalars = Scalars(len(self.objectives))
        self._origins: dict[str, tuple[Origin, str]] = {}
        self._last_gain = 0

    def run(self) -> History:
        """Search until a budget ends, or the space is exhausted."""
        start = time.monotonic()
        try:
            first = self._first_points()
            self._take_known()
            self._search(first, start)
        except KeyboardInterrupt:
            self.history.interrupted = True
            self.history.ended = "interrupted"
        except KernloomError as error:
            if not self.history.all:
                raise
            # What was evaluated is told nevertheless.
            self.history.failure = error
            self.history.ended = "an error"
        self.history.seconds = round(time.monotonic() - start, 3)
        self._progress.done()
        return self.history

    def _search(self, first: tuple[Point, ...], start: float) -> None:
        history, settings = self.history, self.plan.search
        strategy = self._strategy(first)
        while not (why := self._end(start)):
            self._scalars.next()
            if self._scalars.several:
                strategy = self._strategy(first)
            size = self._batch_size()
            if settings.trials is not None:
                size = min(size, settings.trials - len(history.all))
            asked = strategy.ask(size)
            if not asked:
                why = self._exhausted()
                break
            before = len(history.all)
            results = self._evaluate(asked)
            self._tell(strategy, before)
            if results is not None and (results.interrupted or results.failure):
                history.interrupted = results.interrupted
                history.failure = results.failure
                why = "interrupted" if results.interrupted else "an error"
                break
            for one in self._known.others():
                self._add(one.point, one.trial, known=True)
                self._tell(strategy, len(history.all) - 1)
        history.ended = why

    def _end(self, start: float) -> str:
        """Why the search ends; empty while it goes on."""
        settings, number = self.plan.search, len(self.history.all)
        if settings.trials is not None and number >= settings.trials:
            return f"the limit of {count(settings.trials, 'point')} is reached (search.trials)"
        if settings.seconds is not None and time.monotonic() - start >= settings.seconds:
            return f"{settings.seconds:g} s (search.seconds)"
        stuck = number - self._last_gain
        if settings.patience is not None and stuck >= settings.patience and self.history.good:
            return f"no gain in {count(settings.patience, 'point')} (search.patience)"
        return ""

    def _exhausted(self) -> str:
        tables = self.plan.study.space.tables
        if tables and len({_text(one.point) for one in self.history.all}) >= tables.total:
            return "every point was tried"
        return "the strategy has no more points"

    def _batch_size(self) -> int:
        experiment = self.plan.experiment
        if self.plan.search.batch:
            return self.plan.search.batch
        jobs = experiment.build.jobs or len(os.sched_getaffinity(0))
        chunk = int(experiment.fleet.get("chunk", 0) or 0)
        return max(PER_CORE * jobs, chunk)

    # What is there to begin with

    def _take_known(self) -> None:
        if not self.plan.search.memory:
            return
        # In the order of their evaluation, so that `patience` is counted as before a restart.
        for one in sorted(self._known.of_this_work(), key=lambda one: one.trial.created):
            self._add(one.point, one.trial, known=True)

    def _first_points(self) -> tuple[Point, ...]:
        found: list[Point] = []

        def add(point: Point, origin: Origin, source: str = "") -> None:
            self._origins.setdefault(_text(point), (origin, source))
            if point not in found:
                found.append(point)

        for point in self.plan.models:
            add(point, "model")
        for point in self.plan.given:
            add(point, "given")
        if self.plan.search.memory:
            self.history.similar = tuple(self._known.similar())
            for one in self.history.similar:
                add(one.point, "similar", one.source)
        return tuple(found)

    def _strategy(self, first: tuple[Point, ...]) -> GuardedStrategy:
        settings = self.plan.search
        search = Search(
            self.plan.study.space,
            settings.seed,
            settings.trials,
            first,
            tuple((one.point, self._scalars.value(one.costs)) for one in self.history.all),
        )
        return GuardedStrategy(settings.strategy or DEFAULT, search)

    # Asking and telling

    def _tell(self, strategy: GuardedStrategy, start: int) -> None:
        for one in self.history.all[start:]:
            strategy.tell(one.point, self._scalars.value(one.costs))

    # Evaluating

    def _evaluate(self, points: Iterable[Point]) -> Results | None:
        limit = self._limits.timeout
        more = [Override.of("timeout", limit, group=False)] if limit else []
        plans: list[tuple[Point, Planned]] = []
        for point, found in planned_points(self.plan, points, more):
            if isinstance(found, Trial):
                self._add(point, found)
            else:
                plans.append((point, found))
        refused = self._known.not_compiling([plan for _, plan in plans])
        for point, plan in plans:
            if plan.id in refused:
                self._add(point, refused[plan.id], known=True)
                self._known.seen(plan.id)
        plans = [(point, plan) for point, plan in plans if plan.id not in refused]
        if not plans:
            return None
        self._progress.batch(self.history, len(plans))
        results = self._execution.execute([plan for _, plan in plans])
        self.history.build = self.history.build.plus(results.build)
        self.history.notes += [n for n in results.notes if n not in self.history.notes]
        by_id = {trial.id: trial for trial in results.trials}
        for point, plan in plans:
            if plan.id in by_id:
                self._add(point, self._limits.explained(by_id[plan.id]), plan=plan)
                self._known.seen(plan.id)
        return results

    def _add(
        self, point: Point, trial: Trial, plan: Planned | None = None, *, known: bool = False
    ) -> None:
        origin, source = self._origins.get(_text(point), ("search", ""))
        costs = self._costs(trial)
        before = self.history.best()
        self.history.all.append(Evaluated(point, trial, costs, origin, source, known, plan))
        if costs is not None:
            self._limits.seen(trial, costs[0])
            if before is None or before.costs is None or costs[0] < before.costs[0]:
                self._last_gain = len(self.history.all)
                self._progress.gain(self.objectives[0].shown(trial), _roof(trial))

    def _costs(self, trial: Trial) -> tuple[float, ...] | None:
        found = [objective.cost(trial) for objective in self.objectives]
        costs = tuple(cost for cost in found if cost is not None)
        return costs if len(costs) == len(found) else None


class StudyProgress:
    """Shows a study as one progress, whatever its batches do: best so far, and share of roof."""

    def __init__(self, inner: object, total: int | None) -> None:
        from kernloom.run.progress import Progress

        self.inner: Progress = inner  # type: ignore[assignment]
        self._total = total
        self._before = self._size = 0
        self._best = ""

    def batch(self, history: History, size: int) -> None:
        self._before, self._size = len(history.all), size
        self.update("measuring", 0, size)

    def gain(self, value: str, roof: str) -> None:
        self._best = f"best {value}" + (f" ({roof})" if roof else "")

    def update(
        self, phase: str, done: int, total: int, note: str = "", *, part: float = 0.0
    ) -> None:
        at = self._before + (0 if phase == "building" else done)
        notes = ", ".join(filter(None, [self._best, phase, note]))
        self.inner.update("tuning", at, max(self._total or 0, self._before + self._size), notes)

    def ended(self, trial: Trial) -> None:
        self.inner.ended(replace(trial, metrics={}) if trial.good else trial)

    def say(self, text: str) -> None:
        self.inner.say(text)

    def clear(self) -> None:
        pass  # the view of the whole study stays between its batches

    def done(self) -> None:
        self.inner.clear()


def _roof(trial: Trial) -> str:
    share = trial.metrics.get(ROOF_FRACTION.name)
    return f"{share:.0%} of the roof" if isinstance(share, (int, float)) else ""


def _text(point: Point) -> str:
    return repr(sorted(point.items()))
