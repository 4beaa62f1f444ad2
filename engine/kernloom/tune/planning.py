"""Plans a study: the workload without tunables, its space, and every point of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernloom.base.errors import ConfigError, UnavailableError, UsageError, nearest
from kernloom.config.overrides import Override, Overrides
from kernloom.config.schema import Experiment, Scalar
from kernloom.config.settings import SearchSettings
from kernloom.measure.ranking import changes_work
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.plan.schedule import Schedule
from kernloom.plan.select import values_for_step
from kernloom.plan.space import tunables_of
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_each, plan_points
from kernloom.tune.strategy import DEFAULT, STRATEGIES
from kernloom.tune.tunables import (
    FIXED,
    MAX_CHOICES,
    Point,
    StudySpace,
    choices_of,
    study_space,
)

STUDY_PROVIDERS = ("fixed", "model")
BUILD_LIMIT = "build.limit"
NOT_VARIED = ("select", "search", "measure", "store", "fleet", "sweep", "output", "recipe", "seed")
"""Root keys that belong to the whole study."""


@dataclass(frozen=True)
class StudyPlan:
    """A study before its first trial."""

    assembly: Assembly
    overrides: Overrides
    """Those of every point, without tunables and varied keys."""
    base: Planned
    """The workload with the parameters that the model chooses."""
    schedule: Schedule
    search: SearchSettings
    study: StudySpace
    models: tuple[Point, ...]
    """The points that the model chooses, one for each choice of the varied keys."""
    given: tuple[Point, ...] = ()
    """The point that the other providers choose, such as a parameter file."""
    racing: str = ""
    """The measuring policy of the race."""
    without: tuple[str, ...] = ()
    """Stage types that are left out."""

    @property
    def experiment(self) -> Experiment:
        return self.base.experiment

    def plan(self, point: Point, more: Iterable[Override] = ()) -> Planned:
        """Plan a point. A point that cannot be planned raises a ConfigError."""
        words = self.overrides.then([*self.study.overrides(point), *more])
        points = self.assembly.composer.points(replace(words, multirun=True))
        (plan,) = plan_each(self.assembly, points, alone=False, without=self.without)
        return plan

    def plan_without_tunables(self, point: Point, more: Iterable[Override]) -> Planned:
        """Plan the varied keys of a point, with parameters from other providers."""
        varied = {one.key for one in self.study.varied}
        own = [one for one in self.study.overrides(point) if one.key in varied]
        rest = self.overrides.where(
            lambda one: one.root != "arch" and not one.key.startswith(FIXED)
        )
        words = rest.then([*own, *more])
        points = self.assembly.composer.points(replace(words, multirun=True))
        (plan,) = plan_each(self.assembly, points, alone=False, without=self.without)
        return plan

    def under(self, policy: str) -> StudyPlan:
        """The same study with another measuring policy."""
        rest = self.overrides.where(lambda one: not (one.key == "measure" and one.group))
        chosen = self.assembly.composer.choose({"measure": policy})
        return replace(self, overrides=replace(rest, items=(*chosen, *rest.items)))

    def cases(self) -> Iterator[tuple[str, StudyPlan]]:
        """What a winner must be right for, by name: the work that was tuned, and every case as the
        workload defines it."""
        own = self.experiment.case
        sized = any(_is_size(one) for one in self.overrides)
        tuned = "the tuned sizes" if own == "default" else f"{own} with the tuned sizes"
        yield tuned if sized else own, self
        for case in ["default", *map(str, self.base.point.data["workload"].get("cases") or {})]:
            if sized or case != own:
                yield case, self._in_case(case)

    def _in_case(self, case: str) -> StudyPlan:
        rest = self.overrides.where(lambda one: one.key != "case" and not _is_size(one))
        return replace(self, overrides=rest.then([Override.of("case", case, group=False)]))

    def refused(self, point: Point, error: ConfigError) -> Trial:
        """The trial of a point that cannot be planned; it is not stored."""
        experiment = self.experiment
        return Trial(
            id="",
            workload=experiment.workload.name,
            case=experiment.case,
            target=experiment.target.name,
            status="refused",
            verified=False,
            params=self.study.fixed(point),
            stage=error.stage or "plan",
            message=str(error),
        )


def _is_size(one: Override) -> bool:
    return f"{one.key}.".startswith("workload.sizes.")


def plan_study(assembly: Assembly, overrides: Overrides) -> StudyPlan:
    """The plan of a study. Keys with several values are searched, too."""
    swept = [one for one in overrides if one.swept]
    varied = [one for one in swept if not one.key.startswith(f"{FIXED}.")]
    _check_varied(varied)
    rest = replace(overrides.where(lambda one: not one.swept), multirun=False)
    whole = _plan(assembly, rest, varied)
    search = whole.experiment.search
    racing = next((str(v) for v in reversed(rest.values("measure"))), search.racing)
    composer = assembly.composer
    STRATEGIES.get(search.strategy or DEFAULT, key="search.strategy").check_available()
    for option in (search.screening, racing):
        if option not in composer.options("measure"):
            raise ConfigError(
                f"unknown measuring policy '{option}'",
                key="search.screening" if option == search.screening else "search.racing",
                hint=f"Allowed: {', '.join(composer.options('measure'))}.",
            )
    policy = composer.choose({"measure": search.screening})
    own = rest.where(lambda one: not (one.key == "measure" and one.group))
    common = replace(own, items=(*policy, *own.items))
    if search.build_limit is not None and not any(one.key == BUILD_LIMIT for one in rest):
        common = common.then([Override.of(BUILD_LIMIT, search.build_limit, group=False)])
    plain = common.then([Override.of("select.providers", list(STUDY_PROVIDERS), group=False)])
    bases: dict[str, Planned] = {}
    for text, choice in choices_of(varied):
        bases[text] = _plan(assembly, plain, varied, choice)
    base = next(iter(bases.values()))
    schedules = {text: (_schedule(plan), plan.experiment.arch) for text, plan in bases.items()}
    fixed = _fixed(base, swept)
    study = study_space(schedules, varied, fixed, search.steps, _Applied(base.experiment))
    models = [_chosen(study, bases[text], varied, choice) for text, choice in choices_of(varied)]
    given = []
    if set(whole.experiment.select.providers) & {"file", "python"}:
        kept = [p for p in whole.experiment.select.providers if p in ("fixed", "file", "python")]
        asked = Override.of("select.providers", [*kept, "model"], group=False)
        text, choice = next(choices_of(varied))
        given = [
            _chosen(study, _plan(assembly, common.then([asked]), varied, choice), varied, choice)
        ]
    return StudyPlan(
        assembly,
        plain,
        base,
        _schedule(base),
        search,
        study,
        tuple(point for point in models if point is not None),
        tuple(point for point in given if point is not None and point not in models),
        racing,
    )


def _plan(
    assembly: Assembly,
    overrides: Overrides,
    varied: Sequence[Override],
    choice: Sequence[object] | None = None,
) -> Planned:
    values = [one.values[0] for one in varied] if choice is None else choice
    chosen = [
        Override.of(one.key, value, group=one.group)
        for one, value in zip(varied, values, strict=True)
    ]
    (plan,) = plan_points(assembly, overrides.then(chosen), refresh=choice is None)
    return plan


def _check_varied(varied: Sequence[Override]) -> None:
    combinations = 1
    for one in varied:
        combinations *= len(one.values)
        if changes_work(one.key):
            raise UsageError(
                f"{one.key} has several values, but a study is about one workload, case and target",
                hint="Tune each on its own: their results cannot be compared.",
            )
        if one.root in NOT_VARIED:
            raise UsageError(f"'{one.key}' belongs to the whole study, so it has one value")
    if combinations > MAX_CHOICES:
        raise UsageError(
            f"the varied keys have more than {MAX_CHOICES} combinations",
            hint="Vary fewer keys, or give them fewer values.",
        )


def _schedule(plan: Planned) -> Schedule:
    found = plan.graph.of_type("steps", plan.outputs)
    if not found:
        raise UsageError("the pipeline has no stage `inspect`, so there are no tunables to search")
    schedule: Schedule = found[0]
    return schedule


class _Applied:
    """The transforms that get parameters in a pipeline: a stage refers to theirs, or to all."""

    def __init__(self, experiment: Experiment) -> None:
        self._refs = set(_refs(dict(experiment.pipeline.stages)))

    def __contains__(self, transform: object) -> bool:
        return any(one.endswith((".params", f".params.{transform}")) for one in self._refs)


def _refs(value: Any) -> Iterator[str]:
    """Every `{ref: STAGE.OUTPUT}` in a config."""
    if isinstance(value, Mapping):
        if isinstance(value.get("ref"), str):
            yield value["ref"]
        for inner in value.values():
            yield from _refs(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _refs(inner)


def _fixed(base: Planned, swept: Sequence[Override]) -> dict[str, dict[str, list[Scalar]]]:
    """Step -> tunable -> the values that the user permits."""
    found: dict[str, dict[str, list[Scalar]]] = {}
    for record in _schedule(base):
        own = found.setdefault(record.name, {})
        for name, value in values_for_step(base.experiment.select.fixed, record).items():
            own[name] = [value]
    for one in swept:
        if not one.key.startswith(f"{FIXED}."):
            continue
        transform, *rest = one.key.removeprefix(f"{FIXED}.").split(".")
        hits = 0
        for record in _schedule(base):
            step, name = (rest[0], rest[1]) if len(rest) == 2 else (record.name, rest[0])
            if step == record.name and tunables_of(record.kernel).get(name, ("",))[0] == transform:
                found[record.name][name] = list(one.values)
                hits += 1
        if not hits:
            raise ConfigError(
                "no step of this workload has this tunable",
                key=one.key,
                hint=nearest(f"{transform}.{rest[-1]}", _tunable_names(base)),
            )
    return found


def _tunable_names(base: Planned) -> list[str]:
    """`transform.tunable` of every step."""
    found = (
        f"{transform}.{name}"
        for record in _schedule(base)
        for name, (transform, *_) in tunables_of(record.kernel).items()
    )
    return list(dict.fromkeys(found))


def _chosen(
    study: StudySpace, plan: Planned, varied: Sequence[Override], choice: Sequence[object]
) -> Point | None:
    """The point whose parameters a plan has."""
    params: Mapping[str, Any] = next(iter(plan.graph.of_type("choices", plan.outputs)), {})
    keys = {one.key: value for one, value in zip(varied, choice, strict=True)}
    return study.point_of(params, keys, given={})


def planned_points(
    plan: StudyPlan, points: Iterable[Point], more: Iterable[Override] = ()
) -> Iterator[tuple[Point, Planned | Trial]]:
    """Each point with its plan, or with the trial that says why it has none."""
    added = list(more)
    for point in points:
        try:
            yield point, plan.plan(point, added)
        except UnavailableError:
            raise
        except ConfigError as error:
            yield point, plan.refused(point, error)


def params_of(point: Mapping[str, object]) -> str:
    """A point for people: `mr=8, nv=2`."""
    from kernloom.config.overrides import spelled

    return ", ".join(f"{key}={spelled(value)}" for key, value in point.items())
