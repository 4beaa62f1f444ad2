"""What the store knows: results of the same study, and the best points of similar ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.base.files import canonical_json
from kernloom.base.lookup import MISSING, lookup
from kernloom.build.probe import is_refusal
from kernloom.config.overrides import Override
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.execution import reusable, stored_trials, with_roof
from kernloom.run.fleet import Fleet
from kernloom.run.known_parameters import distinct
from kernloom.store.store import Store
from kernloom.tune.planning import StudyPlan
from kernloom.tune.tunables import Point

MAX_SIMILAR = 8
"""Points of similar work that a study starts with."""
MAX_LOOKED_AT = 500
MAX_TRIALS = 20_000
"""Newest trials of the workload and target that are searched."""


@dataclass(frozen=True)
class KnownPoint:
    """A point of the space with the trial that is stored for it."""

    point: Point
    trial: Trial


@dataclass(frozen=True)
class Similar:
    """A point that is good for similar work."""

    point: Point
    source: str
    """The work and the trial it is taken from."""
    distance: float


class KnownPoints:
    """Points whose stored trials are valid results, also those that other engines store during the
    study."""

    def __init__(self, plan: StudyPlan, store: Store, fleet: Fleet) -> None:
        self._plan = plan
        self._store = store
        self._fleet = fleet
        self._seen: set[str] = set()
        self._looked_at: set[tuple[str, int]] = set()
        """Stored trials that need not be read again: their ids and attempts."""
        self._state: object = None

    def seen(self, id: str) -> None:
        """The study has this trial already."""
        self._seen.add(id)

    def of_this_work(self) -> Iterator[KnownPoint]:
        """Every point of the space whose trial was stored since the last call."""
        if self._plan.experiment.rerun == "all":
            return
        self._state = self._store.state()
        plans: dict[str, tuple[Point, Planned]] = {}
        for point in self._candidates():
            try:
                plan = self._plan.plan(point)
            except ConfigError:
                continue
            if plan.id not in self._seen:
                plans[plan.id] = point, plan
        wanted = [plan for _, plan in plans.values()]
        found = {
            plan.id: trial
            for plan, trial in stored_trials(self._store, self._fleet, wanted)
            if reusable(trial, plan, beside_builds=True)
        }
        left = [plan for plan in wanted if plan.id not in found]
        for id, trial in (found | self.not_compiling(left)).items():
            self._seen.add(id)
            point, plan = plans[id]
            yield KnownPoint(point, with_roof(self._plan.assembly.roofs, trial, plan))

    def not_compiling(self, plans: Sequence[Planned]) -> dict[str, Trial]:
        """Plan id -> the stored trial of a point that the compiler refused."""
        pairs = list(stored_trials(self._store, self._fleet, plans))
        if not self._fleet.on_this_machine:
            # Points that did not compile here were not sent to the fleet.
            here = self._store.latest(plan.id for plan in plans)
            pairs += [(plan, here[plan.id]) for plan in plans if plan.id in here]
        return {plan.id: trial for plan, trial in pairs if _is_refused_by_compiler(trial, plan)}

    def others(self) -> Iterator[KnownPoint]:
        """What other engines have stored since the last time."""
        if self._plan.search.memory and self._store.state() != self._state and self._state:
            yield from self.of_this_work()

    def similar(self) -> Iterator[Similar]:
        """The best points of similar work: of other shapes, types, arches and toolchains."""
        study, experiment = self._plan.study, self._plan.experiment
        stored = self._plan.assembly.stored_parameters(experiment)
        records = [r for r in self._plan.schedule if any(t.step == r.name for t in study.tunables)]
        lists = [
            list(distinct(islice(stored.ranked(record, experiment), MAX_LOOKED_AT), MAX_SIMILAR))
            for record in records
        ]
        defaults = self._plan.models[0] if self._plan.models else {}
        for place in range(MAX_SIMILAR):
            # The best of every step together, then the second best, and so on.
            chosen = {
                record.name: found[min(place, len(found) - 1)]
                for record, found in zip(records, lists, strict=True)
                if found
            }
            if not chosen or place >= max(map(len, lists)):
                return
            point = {**defaults}
            for axis in study.tunables:
                if axis.step in chosen:
                    point[axis.key] = chosen[axis.step].params[axis.name]
            if study.space.contains(point):
                source = "; ".join(one.source for one in chosen.values())
                yield Similar(point, source, max(one.distance for one in chosen.values()))

    def _candidates(self) -> Iterator[Point]:
        """The points of stored trials that may be of this study; planning shows which are."""
        experiment = self._plan.experiment
        asked = {"workload": experiment.workload.name, "target": experiment.target.name}
        taken: set[str] = set()
        for trial in self._store.stream(asked, MAX_TRIALS, without=self._looked_at):
            self._looked_at.add((trial.id, trial.attempt))
            if trial.id in self._seen or not self._is_of_this_work(trial):
                continue
            keys = {one.key: _value_of(trial, one) for one in self._plan.study.varied}
            point = self._plan.study.point_of(trial.params, keys, given=trial.point)
            if point is not None and (text := canonical_json(point)) not in taken:
                taken.add(text)
                yield point

    def _is_of_this_work(self, trial: Trial) -> bool:
        """Whether a trial may have the id of a point, by fields that are cheap to compare."""
        experiment = self._plan.experiment
        sizes = self._plan.base.point.data["workload"].get("sizes")
        return (
            trial.case == experiment.case
            and lookup(trial.config, ["measure", "name"]) == experiment.measure.name
            and lookup(trial.config, ["workload", "sizes"]) == sizes
        )


def _is_refused_by_compiler(trial: Trial, plan: Planned) -> bool:
    """Whether the compiler refused the same source before. Elsewhere it is asked again, as the
    cause may be gone, but a search has other points."""
    return (
        trial.status == "build_failed"
        and plan.experiment.rerun == "none"
        and is_refusal(trial.message)
    )


def _value_of(trial: Trial, varied: Override) -> Any:
    """The value that a trial has at a varied key."""
    found = lookup(trial.config, varied.key.split("."))
    if varied.group:
        found = found.get("name") if isinstance(found, Mapping) else MISSING
    return found if found in varied.values else None
