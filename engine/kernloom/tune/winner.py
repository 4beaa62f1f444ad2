"""Verifies the winner of a study on every case of its workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from kernloom.base.errors import ConfigError, KernloomError, UnavailableError
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.execution import Execution, once_each
from kernloom.tune.planning import StudyPlan
from kernloom.tune.racing import Leader, RaceResult
from kernloom.tune.tunables import Point

Make = Callable[[StudyPlan], Planned]
"""Plans some parameters for a case of a study."""


def at_point(point: Point) -> Make:
    return lambda case: case.plan(point)


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
    while (best := race.best) is not None:
        found = verified_cases(plan, at_point(best.point), execution(), measured=measured)
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


def verified_cases(
    plan: StudyPlan, make: Make, execution: Execution, *, measured: bool
) -> Verified:
    """Some parameters on every case of the workload."""
    if not measured:
        plan = replace(plan, without=("measure",))
    planned: list[Planned] = []
    refused: list[Trial] = []
    names: dict[str, str] = {}
    for name, case in plan.cases():
        try:
            made = make(case)
        except UnavailableError:
            raise
        except ConfigError as error:
            refused.append(replace(plan.refused({}, error), case=name))
        else:
            planned.append(made)
            names.setdefault(made.id, name)
    if not planned:
        return Verified(tuple(refused))
    try:
        results = execution.execute(once_each(planned))
    except UnavailableError as error:
        return Verified(tuple(refused), failure=error)
    trials = [_named(trial, names) for trial in results.trials]
    return Verified((*trials, *refused), results.interrupted, results.failure)


def _named(trial: Trial, names: Mapping[str, str]) -> Trial:
    return replace(trial, case=names.get(trial.id, trial.case))
