"""Known parameters: the best that the store has for a kernel, on equal or similar work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernloom.base.errors import ConfigError, KernloomError
from kernloom.base.files import sha256_json
from kernloom.base.gauges import ranking_gauge
from kernloom.config.schema import Arch, Experiment, Scalar, Toolchain
from kernloom.config.validate import experiment as validated
from kernloom.measure.ranking import not_ranked
from kernloom.measure.trial import Trial
from kernloom.pipeline.stage import Context, NoOptions
from kernloom.plan.inspect import Inspect
from kernloom.plan.schedule import Schedule, StepRecord
from kernloom.plan.select import Answer, Request
from kernloom.plan.space import check_point, tunables_of, variables_of
from kernloom.store.store import Store

MAX_TRIALS = 10_000
"""Newest good trials that are searched."""
MAX_DISTANCE = 8.0
"""Work further away than this says nothing: eight doublings of a size, or another ISA."""
ONE_PROCESS = 1.03
"""A value from a single process counts as this much worse: it may be lucky."""


@dataclass(frozen=True)
class Work:
    """One step that parameters were measured on, and where."""

    record: StepRecord
    arch: Arch
    toolchain: Toolchain
    target: str
    alone: bool
    """Whether it is the only step, so that the time is that of this kernel."""


@dataclass(frozen=True)
class KnownParameters:
    """Parameters of a kernel, and the trial that measured them."""

    params: Mapping[str, Scalar]
    cost: float
    trial: str
    work: Work
    distance: float
    """0: the same sizes, type, arch, toolchain and target."""

    @property
    def source(self) -> str:
        """`trial 3f2a81c09d47be61 (matmul M=512 float32 on host, x86_64_v4, gcc), distance 1`."""
        sizes = " ".join(f"{name}={size}" for name, size in self.work.record.sizes.items())
        record = self.work.record
        where = f"{self.work.target}, {self.work.arch.name}, {self.work.toolchain.name}"
        what = f"{record.kernel.name} {sizes} {record.dtype} on {where}"
        far = f"distance {self.distance:.2g}" if self.distance else "the same work"
        return f"trial {self.trial} ({what}), {far}"


@dataclass
class _Group:
    """Trials of one workload in one place."""

    steps: Schedule
    experiment: Experiment
    trials: list[tuple[float, Trial]] = field(default_factory=list)


class StoredParameters:
    """The parameters in a store, read once."""

    def __init__(self, store: Store) -> None:
        self._groups: dict[str, _Group | None] = {}
        for trial in store.stream({"verified": "true"}, MAX_TRIALS):
            self._add(trial)

    def _add(self, trial: Trial) -> None:
        gauge = ranking_gauge(trial.metrics)
        if gauge is None or not trial.good or not trial.params or not_ranked(trial):
            return
        config = trial.config
        place = [trial.target, *(_name(config, part) for part in ("arch", "toolchain"))]
        key = sha256_json([config.get("workload"), *place, gauge.name])
        if key not in self._groups:
            self._groups[key] = _group(config)
        group = self._groups[key]
        if group is not None:
            alone = trial.metrics.get("processes") == 1 and not gauge.exact
            cost = gauge.cost(float(trial.metrics[gauge.name]))
            group.trials.append((cost * ONE_PROCESS if alone else cost, trial))

    def ranked(self, record: StepRecord, experiment: Experiment) -> Iterator[KnownParameters]:
        """What is known for a step, the nearest work first, the best of it first."""
        found: list[tuple[float, _Group, StepRecord]] = []
        for group in self._groups.values():
            for step in group.steps if group else ():
                if group and _same_kernel(step, record):
                    far = distance(record, experiment, step, group.experiment)
                    far += 0.0 if len(group.steps) == 1 else 0.25
                    if far <= MAX_DISTANCE:
                        found.append((far, group, step))
        for far, group, step in sorted(found, key=lambda one: one[0]):
            work = _work(step, group)
            for cost, trial in sorted(group.trials, key=lambda one: one[0]):
                params = _params_of(step, trial)
                if params is not None:
                    yield KnownParameters(params, cost, trial.id, work, far)

    def provide(self, request: Request) -> Answer:
        """The provider `stored`: the best known parameters that are valid here."""
        record, experiment = request.record, request.experiment
        if experiment is None:
            return Answer()
        known = variables_of(record, request.arch)
        for one in self.ranked(record, experiment):
            point = {**one.params, **request.decided}
            try:
                check_point(record.kernel, point, known, key="select")
            except ConfigError:
                continue
            return Answer(point, source=one.source)
        return Answer()


def distance(
    record: StepRecord, experiment: Experiment, other: StepRecord, elsewhere: Experiment
) -> float:
    """How far two steps are from each other: doublings of sizes, and what else differs."""
    far = sum(_doublings(size, other.sizes.get(name, 0)) for name, size in record.sizes.items())
    arch, theirs = experiment.arch, elsewhere.arch
    far += 4.0 * (record.dtype != other.dtype)
    far += 8.0 * (arch.isa != theirs.isa)
    far += 2.0 * _doublings(arch.vector_bytes, theirs.vector_bytes)
    far += 0.5 * (arch.name != theirs.name)
    far += 0.5 * (experiment.toolchain.name != elsewhere.toolchain.name)
    far += 1.0 * (experiment.target.name != elsewhere.target.name)
    return float(far)


def _doublings(one: float, other: float) -> float:
    if one == other:
        return 0.0
    return abs(math.log2(one / other)) if one > 0 and other > 0 else MAX_DISTANCE


def _same_kernel(one: StepRecord, other: StepRecord) -> bool:
    return one.kernel.name == other.kernel.name and (
        {name: transform for name, (transform, _) in tunables_of(one.kernel).items()}
        == {name: transform for name, (transform, _) in tunables_of(other.kernel).items()}
    )


def _work(record: StepRecord, group: _Group) -> Work:
    there = group.experiment
    return Work(record, there.arch, there.toolchain, there.target.name, len(group.steps) == 1)


def _group(config: Mapping[str, Any]) -> _Group | None:
    """The steps of a stored config; None if it is of another version and cannot be read."""
    try:
        found = validated({**config, "search": {}} if "search" not in config else config)
        outputs = Inspect("shapes", NoOptions()).run(
            Context(found, {}), {"workload": found.workload}
        )
    except (KernloomError, KeyError, TypeError, ValueError):
        return None
    steps: Schedule = outputs["steps"]
    return _Group(steps, found)


def _params_of(record: StepRecord, trial: Trial) -> dict[str, Scalar] | None:
    """Every tunable of a step in a trial; None if it does not tell all of them."""
    found: dict[str, Scalar] = {}
    for name, (transform, values) in tunables_of(record.kernel).items():
        value = trial.params.get(transform, {}).get(record.name, {}).get(name)
        if value is None:  # a step that is fused into another has no parameters of its own
            value = trial.point.get(f"select.fixed.{transform}.{record.name}.{name}")
        if value is None or value not in values:
            return None
        found[name] = value
    return found


def _name(config: Mapping[str, Any], part: str) -> str:
    section = config.get(part)
    return str(section.get("name")) if isinstance(section, Mapping) else ""


def distinct(found: Iterable[KnownParameters], limit: int) -> Iterator[KnownParameters]:
    """The first ones with different parameters."""
    seen: list[Mapping[str, Scalar]] = []
    for one in found:
        if len(seen) >= limit:
            return
        if one.params not in seen:
            seen.append(one.params)
            yield one
