"""The outcome of a study as plain data: for `output=json`, tables and files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.base.errors import KernloomError
from kernloom.measure.comparison import Comparison
from kernloom.measure.trial import Trial
from kernloom.tune.importance import importances
from kernloom.tune.objective import Objective
from kernloom.tune.planning import StudyPlan
from kernloom.tune.racing import Leader, RaceResult
from kernloom.tune.strategy import DEFAULT
from kernloom.tune.study import Evaluated, History
from kernloom.tune.winner import Verified

_NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:e[+-]?\d+)?(?: [a-zµ]?s\b)?")
"""A number; of a duration also the unit, which depends on its size."""


@dataclass(frozen=True)
class Outcome:
    """Everything that came of a study."""

    plan: StudyPlan
    objectives: tuple[Objective, ...]
    history: History
    race: RaceResult
    verified: Verified | None

    @property
    def found(self) -> bool:
        """Whether there is a winner that is right on every case."""
        whole = not (self.interrupted or self.failure)
        return whole and self.race.best is not None and not (self.verified and self.verified.wrong)

    @property
    def interrupted(self) -> bool:
        verifying = self.verified is not None and self.verified.interrupted
        return self.history.interrupted or self.race.interrupted or verifying

    @property
    def failure(self) -> KernloomError | None:
        """The error that ended it early."""
        verifying = self.verified.failure if self.verified else None
        return self.history.failure or self.race.failure or verifying


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    plan, history, race = outcome.plan, outcome.history, outcome.race
    experiment, space = plan.experiment, plan.study.space
    build = history.build.plus(race.build)
    best = race.best
    return {
        "study": {
            "workload": experiment.workload.name,
            "case": experiment.case,
            "target": experiment.target.name,
            "arch": experiment.arch.name,
            "toolchain": experiment.toolchain.name,
            "strategy": plan.search.strategy or DEFAULT,
            "seed": plan.search.seed,
            "objective": [_objective_name(one, history) for one in outcome.objectives],
            "axes": {
                **{one.key: list(one.values) for one in plan.study.varied},
                **{one.key: list(one.values) for one in plan.study.tunables},
            },
            "combinations": space.size,
            "points": space.tables.total if space.tables else None,
            "evaluated": len(history.all),
            "known": history.known,
            "failed": len(history.all) - len(history.good),
            "ended": history.ended,
            "seconds": history.seconds,
            "interrupted": outcome.interrupted,
        },
        "winner": _leader_document(best, outcome) if best else None,
        "leaders": [_leader_document(one, outcome) for one in race.leaders],
        "race": {
            "policy": race.policy,
            "stages": race.stages,
            "rounds": race.rounds,
            "complete": not (outcome.interrupted or outcome.failure),
        },
        "model": _model_document(outcome),
        "similar": [
            {"point": one.point, "source": one.source, "distance": one.distance}
            for one in history.similar
        ],
        "importance": [
            {"name": one.key, "share": one.share, "best": one.best, "spread": one.spread}
            for one in importances(history.all)
        ],
        "failures": [
            *failures_of([one.trial for one in history.all]),
            *_without_value(history, outcome.objectives),
        ],
        "cases": [
            {
                "case": one.case,
                "status": one.status,
                "verified": one.verified,
                "message": one.message,
            }
            for one in (outcome.verified.trials if outcome.verified else ())
        ],
        "notes": list(history.notes),
        "build": vars(build),
        "history": [_evaluated_document(n, one) for n, one in enumerate(history.all, 1)],
    }


def _without_value(history: History, objectives: Sequence[Objective]) -> list[dict[str, Any]]:
    """Good trials whose objective is no number, such as a division by zero."""
    number = sum(one.trial.good and one.costs is None for one in history.all)
    names = " or ".join(one.text for one in objectives if one.text)
    reason = f"the objective {names} has no finite value".replace("  ", " ")
    return [{"status": "ok", "reason": reason, "points": number}] if number else []


def _objective_name(objective: Objective, history: History) -> str:
    if objective.text:
        return objective.text
    gauges = (objective.gauge(one.trial) for one in history.good)
    return next((gauge.name for gauge in gauges if gauge), "")


def _leader_document(one: Leader, outcome: Outcome) -> dict[str, Any]:
    objectives = outcome.objectives if one.costs else ()
    values = [_value_text(objective, one, by) for by, objective in enumerate(objectives)]
    return {
        "point": one.point,
        "params": outcome.plan.study.fixed(one.point),
        "id": one.trial.id,
        "status": one.trial.status,
        "verdict": one.verdict,
        "values": values,
        "costs": list(one.costs) if one.costs else None,
        "metrics": dict(one.trial.metrics),
        "speedup": _comparison_document(one.comparison),
        "origin": one.searched.origin,
        "source": one.searched.source,
        "message": one.trial.message,
    }


def _value_text(objective: Objective, one: Leader, by: int) -> str:
    """The value of an objective with half its interval."""
    if gauge := objective.gauge(one.trial):
        return gauge.with_interval(one.trial.metrics)
    interval = one.intervals[by] if one.intervals else None
    shown = objective.shown(one.trial)
    return f"{shown} ±{interval.relative_half_width:.1%}" if interval else shown


def _comparison_document(comparison: Comparison | None) -> Mapping[str, Any] | None:
    """Compared with the best: below 1 for a point that is slower."""
    if comparison is None:
        return None
    names = ("speedup", "ci_low", "ci_high", "verdict", "rounds")
    return {name: getattr(comparison, name) for name in names}


def _model_document(outcome: Outcome) -> dict[str, Any] | None:
    """How far the model's choice is from the best point: in the race, else in the search."""
    best = outcome.race.best
    models = outcome.plan.models
    if best is None or not models or len(outcome.objectives) > 1:
        return None
    for point in models:
        raced = next((one for one in outcome.race.leaders if one.point == point), None)
        if raced is not None and raced.costs and best.costs:
            is_best = raced.trial.id == best.trial.id
            ratio = ratio_to_best(raced.costs[0], best.costs[0])
            return {
                "point": point,
                "ratio": 1.0 if is_best else ratio,
                "verdict": "best" if is_best else raced.verdict,
                "status": raced.trial.status,
            }
    tried = {repr(one.point): one for one in outcome.history.all}
    one = tried.get(repr(models[0]))
    if one is None:
        return {"point": models[0], "ratio": None, "verdict": "untried", "status": ""}
    if one.costs and best.searched.costs:
        is_best = one.trial.id == best.searched.trial.id
        ratio = 1.0 if is_best else ratio_to_best(one.costs[0], best.searched.costs[0])
        verdict = "best" if is_best else "undecided"
        return {
            "point": one.point,
            "ratio": ratio,
            "verdict": verdict,
            "status": one.trial.status,
        }
    return {"point": one.point, "ratio": None, "verdict": "failed", "status": one.trial.status}


def ratio_to_best(cost: float, best: float) -> float:
    """How many times worse a cost is than the best; costs of maximised metrics are negative."""
    if cost < 0 and best < 0:
        cost, best = best, cost
    return cost / best if best else 1.0


def failures_of(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Failed trials by status and reason, the most frequent first; reasons that differ only in
    numbers are one, told by the first."""
    number, first = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
    for trial in (one for one in trials if not one.good):
        reason = _reason(trial)
        kind = trial.status, _NUMBER.sub("0", reason)
        first.setdefault(kind, reason)
        number[kind] += 1
    return [
        {"status": kind[0], "reason": first[kind], "points": points}
        for kind, points in number.most_common()
    ]


def _reason(trial: Trial) -> str:
    lines = [line.strip() for line in trial.message.splitlines() if line.strip()]
    if trial.status == "timeout" and len(lines) > 1:
        return lines[-1]
    errors = [line for line in lines if "error" in line]
    return (errors or lines or [""])[0]


def _evaluated_document(number: int, one: Evaluated) -> dict[str, Any]:
    return {
        "number": number,
        "point": one.point,
        "origin": one.origin,
        "source": one.source,
        "known": one.known,
        "id": one.trial.id,
        "attempt": one.trial.attempt,
        "status": one.trial.status,
        "costs": list(one.costs) if one.costs else None,
        "metrics": dict(one.trial.metrics),
        "seconds": one.trial.seconds,
        "created": one.trial.created,
        "reused": one.trial.reused,
        "message": one.trial.message,
    }
