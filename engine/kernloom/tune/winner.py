"""Verifies the winner of a study on every case of its workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

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
        if not found.wrong or not found.trials:
            return race, found
        cases = ", ".join(trial.case for trial in found.wrong)
        bad = replace(best.trial, message=f"wrong on case {cases}: {found.wrong[0].message}")
        failed = replace(best, trial=bad, verdict="failed", costs=None)
        rest = [one for one in race.leaders if one is not best]
        race = replace(race, leaders=[*_with_best(rest), failed])
    return race, None


def _with_best(leaders: list[Leader]) -> Iterator[Leader]:
    """The leaders without their first one: the next is the best."""
    for number, one in enumerate(leaders):
        first = number == 0 and one.costs is not None
        yield replace(one, verdict="best", comparison=None) if first else one


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
    if planned:
        trials = [*execution.execute(once_each(planned)).trials, *trials]
    return Verified(tuple(trials))
