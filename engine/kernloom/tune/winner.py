"""Verifies the winner of a study on every case of its workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.execution import Execution, once_each
from kernloom.tune.planning import StudyPlan, planned_points
from kernloom.tune.racing import Leader, RaceResult
from kernloom.tune.tunables import Point


@dataclass(frozen=True)
class Verified:
    """The winner on each case; a case for which its parameters are invalid is refused."""

    trials: tuple[Trial, ...]
    interrupted: bool = False
    failure: KernloomError | None = None
    """The error that ended the verification; the trials before it are listed."""

    @property
    def wrong(self) -> list[Trial]:
        """Cases that do not verify, although the parameters are valid for them."""
        return [one for one in self.trials if not one.verified and one.status not in SKIPPED]


SKIPPED = ("refused", "unavailable", "interrupted", "out_of_memory", "timeout")
"""Statuses that say nothing about whether the results are right."""


def verified_winner(
    plan: StudyPlan, race: RaceResult, execution: Callable[[], Execution], *, measured: bool
) -> tuple[RaceResult, Verified | None]:
    """The race, without leaders that are wrong on some case, and the cases of the winner.

    `measured`: the trials are measured too, where they run on another machine.
    """
    checked = plan if measured else replace(plan, without=("measure",))
    while (best := race.best) is not None:
        found = _verified(checked, best.point, execution())
        if found.interrupted or found.failure or not found.wrong:
            return race, found
        cases = ", ".join(trial.case for trial in found.wrong)
        bad = replace(best.trial, message=f"wrong on case {cases}: {found.wrong[0].message}")
        failed = replace(best, trial=bad, verdict="failed", costs=None)
        rest = [one for one in race.leaders if one is not best]
        several = best.costs is not None and len(best.costs) > 1
        race = replace(race, leaders=[*(rest if several else _with_best(rest)), failed])
    return race, None


def _with_best(leaders: list[Leader]) -> Iterator[Leader]:
    """The leaders without their first one: the fastest is the best, and nothing is known of the
    others, since they were compared with the one that is gone."""
    good = sorted((one for one in leaders if one.costs), key=lambda one: one.costs or ())
    for number, one in enumerate(good):
        yield replace(one, verdict="undecided" if number else "best", comparison=None)
    yield from (one for one in leaders if not one.costs)


def _verified(plan: StudyPlan, point: Point, execution: Execution) -> Verified:
    cases = ["default", *map(str, plan.base.point.data["workload"].get("cases") or {})]
    planned: list[Planned] = []
    trials: list[Trial] = []
    for case in cases:
        for _, made in planned_points(plan.in_case(case), [point]):
            if isinstance(made, Planned):
                planned.append(made)
            else:
                trials.append(replace(made, case=case))
    if not planned:
        return Verified(tuple(trials))
    try:
        results = execution.execute(once_each(planned))
    except UnavailableError as error:
        return Verified(tuple(trials), failure=error)
    return Verified((*results.trials, *trials), results.interrupted, results.failure)
