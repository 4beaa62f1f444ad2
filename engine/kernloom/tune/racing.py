"""The race: the leaders of a search are measured in the same rounds until the best is separated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.config.overrides import Override
from kernloom.config.schema import Policy
from kernloom.measure.comparison import Comparison, enough, judged
from kernloom.measure.statistics import Interval, median_interval
from kernloom.measure.trial import Samples, Trial
from kernloom.plan.planned import Planned
from kernloom.run.execution import BuildSummary, Execution
from kernloom.tune.objective import Objective
from kernloom.tune.pareto import front, spread
from kernloom.tune.planning import StudyPlan, planned_points
from kernloom.tune.rounds import costs_by_round, log_gains
from kernloom.tune.study import Evaluated, History
from kernloom.tune.tunables import Point

Verdict = Literal["best", "equal", "worse", "undecided", "failed"]
SamplesOf = Callable[[Trial], Sequence[Samples]]


@dataclass(frozen=True)
class Leader:
    """A point of the race, with the trial that measured it last."""

    point: Point
    trial: Trial
    costs: tuple[float, ...] | None
    searched: Evaluated
    """Its result in the search."""
    verdict: Verdict = "undecided"
    comparison: Comparison | None = None
    """Compared with the best: the speedup is above 1 for one that is faster."""
    intervals: tuple[Interval | None, ...] = ()
    """The interval of each objective's cost; None if the rounds have no values of it."""
    plan: Planned | None = field(default=None, compare=False, repr=False)


@dataclass
class RaceResult:
    """The leaders, best first, and how they were separated."""

    leaders: list[Leader] = field(default_factory=list)
    stages: int = 0
    rounds: int = 0
    """Rounds of the last stage."""
    policy: str = ""
    build: BuildSummary = field(default_factory=BuildSummary)
    interrupted: bool = False
    failure: KernloomError | None = None
    """The error that ended the race; its leaders are as they were before."""

    @property
    def ended_early(self) -> bool:
        return self.interrupted or self.failure is not None

    @property
    def best(self) -> Leader | None:
        found = (one for one in self.leaders if one.costs is not None and one.verdict != "failed")
        return next(found, None)


class RaceTrack:
    """Measures points under the racing policy, each stage with more rounds."""

    def __init__(
        self,
        plan: StudyPlan,
        objectives: Sequence[Objective],
        execution: Execution,
        samples_of: SamplesOf,
    ) -> None:
        self._plan = plan
        self._objectives = tuple(objectives)
        self._execution = execution
        self._samples_of = samples_of

    def race(self, history: History) -> RaceResult:
        """Race the leaders of a search."""
        search = self._plan.search
        found = not_raced(self._plan, self._objectives, history)
        if not found.leaders:
            return found
        if all(objective.is_exact(found.leaders[0].trial) for objective in self._objectives):
            found.leaders = self._by_count(found.leaders)
            return found
        if search.leaders == 1 and search.stages == 1:
            found.leaders = [replace(found.leaders[0], verdict="best")]
            return found
        found.policy = self._plan.racing
        running = found.leaders
        settled: list[Leader] = []
        for stage in range(search.stages):
            running, policy = self._measured(running, stage, found)
            if found.ended_early:
                running = [one if one.costs else replace(one, verdict="failed") for one in running]
                break
            found.stages = stage + 1
            running = self._judged(running, policy)
            settled += [one for one in running if one.verdict in ("worse", "failed", "equal")]
            running = [one for one in running if one.verdict in ("best", "undecided")]
            if len(running) < 2 or len(self._objectives) > 1:
                break
        found.leaders = sorted(map(self._with_intervals, [*running, *settled]), key=_order)
        best = found.best
        found.rounds = int(best.trial.metrics.get("processes", 1)) if best else 0
        return found

    def _by_count(self, leaders: Sequence[Leader]) -> list[Leader]:
        """Verdicts from exact values: any difference is real."""
        if len(self._objectives) > 1:
            return [replace(one, verdict="best") for one in leaders]  # all are on the front
        best = leaders[0]
        found = []
        for one in leaders:
            equal = one.costs == best.costs
            comparison = None if one is best else _exact_comparison(best, one)
            verdict: Verdict = "best" if one is best else "equal" if equal else "worse"
            found.append(replace(one, verdict=verdict, comparison=comparison))
        return found

    def _measured(
        self, leaders: Sequence[Leader], stage: int, found: RaceResult
    ) -> tuple[list[Leader], Policy]:
        plan = self._plan.under(self._plan.racing)
        by_point: list[tuple[Leader, Planned | Trial]] = []
        more: list[Override] = []
        policy = self._plan.experiment.measure
        for attempt in (1, 2):
            pairs = planned_points(plan, [one.point for one in leaders], more)
            by_point = [(one, made) for one, (_, made) in zip(leaders, pairs, strict=True)]
            planned = [made for _, made in by_point if isinstance(made, Planned)]
            if not planned:
                break
            policy = planned[0].experiment.measure
            if attempt == 1:
                more = _rounds(policy, stage, len(leaders) - 1)
                if not more:
                    break
        try:
            results = self._execution.execute(
                [made for _, made in by_point if isinstance(made, Planned)]
            )
        except UnavailableError as error:
            found.failure = error
            return list(leaders), policy
        found.build = found.build.plus(results.build)
        found.interrupted, found.failure = results.interrupted, results.failure
        by_id = {trial.id: trial for trial in results.trials}
        measured = []
        for one, made in by_point:
            trial = made if isinstance(made, Trial) else by_id.get(made.id)
            if trial is None:
                measured.append(one)
                continue
            costs = self._costs(trial)
            kept = made if isinstance(made, Planned) else None
            measured.append(replace(one, trial=trial, costs=costs, plan=kept))
        return measured, policy

    def _costs(self, trial: Trial) -> tuple[float, ...] | None:
        found = [objective.cost(trial) for objective in self._objectives]
        costs = tuple(cost for cost in found if cost is not None)
        return costs if len(costs) == len(found) else None

    def _judged(self, leaders: Sequence[Leader], policy: Policy) -> list[Leader]:
        ran = sorted((one for one in leaders if one.costs), key=lambda one: one.costs or ())
        failed = [replace(one, verdict="failed") for one in leaders if not one.costs]
        if not ran:
            return failed
        best = ran[0]
        if len(self._objectives) > 1:
            kept = front(ran, lambda one: one.costs)
            return [
                replace(one, verdict="best" if one in kept else "worse") for one in ran
            ] + failed
        ratios = self._ratios(best, ran[1:])
        comparisons = judged(ratios, policy.floor) if ratios else []
        by_name = {int(one.b): one for one in comparisons}
        result = [replace(best, verdict="best", comparison=None)]
        for number, one in enumerate(ran[1:]):
            comparison = by_name.get(number)
            result.append(replace(one, verdict=_verdict(comparison), comparison=comparison))
        return result + failed

    def _ratios(
        self, best: Leader, others: Sequence[Leader]
    ) -> Mapping[tuple[str, str], Sequence[float]]:
        """Log ratios round by round; none where the rounds do not tell."""
        own = self._costs_by_round(best, 0)
        found = {}
        for number, other in enumerate(others):
            if logs := log_gains(own, self._costs_by_round(other, 0)):
                found["best", str(number)] = logs
        return found

    def _costs_by_round(self, one: Leader, by: int) -> tuple[float, ...]:
        return costs_by_round(self._objectives[by], one.trial, self._samples_of(one.trial))

    def _with_intervals(self, one: Leader) -> Leader:
        if not one.costs:
            return one
        rounds = [self._costs_by_round(one, by) for by in range(len(self._objectives))]
        return replace(
            one, intervals=tuple(median_interval(r) if len(r) > 1 else None for r in rounds)
        )


def not_raced(plan: StudyPlan, objectives: Sequence[Objective], history: History) -> RaceResult:
    """The leaders of a search, and the choices of the model, to say how far they are from the
    best."""
    distinct: dict[str, Evaluated] = {}
    for one in sorted(history.good, key=lambda one: one.costs or ()):
        distinct.setdefault(one.trial.id or repr(one.point), one)
    good = list(distinct.values())
    if len(objectives) > 1:
        chosen = spread(front(good, lambda one: one.costs), 2 * plan.search.leaders)
    else:
        chosen = good[: plan.search.leaders]
        models = [one for one in good if one.point in plan.models and one not in chosen]
        chosen += models[:1]
    return RaceResult(
        [Leader(one.point, one.trial, one.costs, one, plan=one.plan) for one in chosen]
    )


def _rounds(policy: Policy, stage: int, pairs: int) -> list[Override]:
    """The rounds of a stage: enough to tell the pairs apart, and twice as many in each stage."""
    least = max(policy.min_rounds, enough(max(1, pairs))) * 2**stage
    most = max(policy.max_rounds * 2**stage, least)
    values = {"measure.min_rounds": min(least, 10_000), "measure.max_rounds": min(most, 10_000)}
    return [Override.of(key, value, group=False) for key, value in values.items()]


def _verdict(comparison: Comparison | None) -> Verdict:
    if comparison is None:
        return "undecided"
    verdicts: dict[str, Verdict] = {"slower": "worse", "equivalent": "equal"}
    return verdicts.get(comparison.verdict, "undecided")


def _exact_comparison(best: Leader, other: Leader) -> Comparison | None:
    logs = log_gains(best.costs or (), other.costs or ())
    if not logs:
        return None
    gain = math.exp(logs[0])
    return Comparison("0", "1", gain, gain, gain, "slower" if logs[0] else "equivalent", 1)


_VERDICTS: Sequence[Verdict] = ("best", "equal", "undecided", "worse", "failed")


def _order(one: Leader) -> tuple[int, float]:
    cost = one.costs[0] if one.costs else math.inf
    return (_VERDICTS.index(one.verdict), cost)
