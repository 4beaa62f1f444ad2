"""Estimates how long a plan would take, from similar builds and trials, or else a guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.base.gauges import TIME, leading_gauge
from kernloom.build.builder import Builder
from kernloom.build.explain import Index
from kernloom.build.manifest import read_manifest
from kernloom.config.schema import Policy
from kernloom.device.devices import DEVICES
from kernloom.plan.artifact import Artifact
from kernloom.plan.inspect import sizes_of
from kernloom.plan.planned import Planned
from kernloom.store.store import Store

SCONS_S = 0.4
"""Seconds to start SCons and read the plan."""
GUESSED_BUILDS = {"kernel": 0.15, "batch": 0.5, "program": 1.0, "object": 0.15}
"""Seconds to build an artifact of each kind, if no similar one was built here."""
GUESSED_START_S = 0.02
"""Seconds to start a runner, fill tensors and verify."""
MAX_POINTS_EXAMINED = 500
"""Limit of points that are examined to estimate the time of all."""
MAX_TRIALS_READ = 20
"""Number of the newest stored trials to estimate from."""


@dataclass(frozen=True)
class Part:
    """The estimate for one part of the work."""

    seconds: float = 0.0
    known: int = 0
    """Number of durations that come from similar builds or trials."""
    guessed: int = 0

    def to_plain(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 3),
            "from_earlier": self.known,
            "guessed": self.guessed,
        }


def estimate(
    missing: Sequence[Artifact], waiting: Sequence[Planned], builder: Builder, store: Store
) -> dict[str, Any]:
    """Seconds to build the missing artifacts and to run the waiting trials."""
    build, run = _building(missing, builder), _running(waiting, store)
    return {
        "seconds": round(build.seconds + run.seconds, 3),
        "jobs": builder.jobs,
        "build": build.to_plain(),
        "run": run.to_plain(),
    }


def _building(missing: Sequence[Artifact], builder: Builder) -> Part:
    if not missing:
        return Part()
    index = Index(builder.build_folder)
    known: dict[tuple[str, ...], float | None] = {}
    for artifact in missing:
        key = _kind(artifact)
        if key not in known:
            known[key] = _built_before(artifact, index, builder)
    durations = [known[_kind(artifact)] for artifact in missing]
    seconds = _with_guesses(durations, (GUESSED_BUILDS[artifact.kind] for artifact in missing))
    together = max(sum(seconds) / builder.jobs, *seconds, 0.0)
    return _part(SCONS_S + together, durations)


def _kind(artifact: Artifact) -> tuple[str, ...]:
    return (artifact.name, artifact.kind, artifact.identity.toolchain, artifact.variant)


def _built_before(artifact: Artifact, index: Index, builder: Builder) -> float | None:
    """Duration of the most similar build under its name."""
    for entry in index.predecessors(artifact):
        if entry.slot.facts.get("toolchain") != artifact.identity.toolchain:
            continue
        manifest = read_manifest(artifact.folder(builder.build_folder).parent / entry.key)
        if manifest and isinstance(manifest.get("seconds"), (int, float)):
            return float(manifest["seconds"])
    return None


def _running(waiting: Sequence[Planned], store: Store) -> Part:
    # The points of a large sweep would all be planned again, so some represent the others.
    some = waiting[:: math.ceil(len(waiting) / MAX_POINTS_EXAMINED) or 1]
    part, times = _running_each(some, store), len(waiting) / max(1, len(some))
    known = round(part.known * times)
    return Part(part.seconds * times, known, len(waiting) - known)


def _running_each(waiting: Sequence[Planned], store: Store) -> Part:
    known: dict[tuple[str, ...], list[_StoredDuration]] = {}
    for plan in waiting:
        key = _kind_of_work(plan)
        if key not in known:
            known[key] = _ran_before(plan, store)
    durations = [_scaled(known[_kind_of_work(plan)], plan) for plan in waiting]
    guesses = (_guess(plan.experiment.measure) for plan in waiting)
    # Rounds are spread over the span; trials that share them wait together.
    span = max((plan.experiment.measure.span_s for plan in waiting if _sampled(plan)), default=0.0)
    return _part(max(span, sum(_with_guesses(durations, guesses))), durations)


def _sampled(plan: Planned) -> bool:
    device = DEVICES.get(plan.experiment.target.device, key="target.device")
    return plan.refusal is None and not leading_gauge(device.gauges).exact


def _kind_of_work(plan: Planned) -> tuple[str, ...]:
    experiment = plan.experiment
    return (experiment.workload.name, experiment.target.name, experiment.measure.name)


@dataclass(frozen=True)
class _StoredDuration:
    """The duration of a stored trial, and the part that scales with the work."""

    seconds: float
    in_kernels: float
    flops: float


def _ran_before(plan: Planned, store: Store) -> list[_StoredDuration]:
    """The newest stored trials of its workload, target and policy; failed ones say little."""
    workload, target, policy = _kind_of_work(plan)
    trials = store.query(
        {"workload": workload, "target": target, "measure.name": policy}, limit=MAX_TRIALS_READ
    )
    runs = _runs(plan.experiment.measure)
    return [
        _StoredDuration(
            trial.seconds,
            trial.metrics.get(TIME.name, 0.0) * 1e-9 * runs * trial.metrics.get("processes", 1),
            _flops(plan, trial.config["workload"]["sizes"]),
        )
        for trial in trials
        if trial.good and trial.seconds
    ]


def _scaled(known: Sequence[_StoredDuration], plan: Planned) -> float | None:
    """The average of those, with the time in kernels scaled by the work."""
    if not known:
        return None
    flops = _flops(plan, plan.experiment.workload.sizes)
    return fmean(
        max(0.0, ran.seconds + ran.in_kernels * (flops / ran.flops - 1 if ran.flops else 0))
        for ran in known
    )


def _flops(plan: Planned, sizes: Mapping[str, Any]) -> float:
    workload = plan.experiment.workload
    try:
        return float(evaluate(workload.cost.flops, sizes_of(replace(workload, sizes=dict(sizes)))))
    except (ConfigError, TypeError, ValueError):
        # A different shape than today's workload of that name.
        return 0.0


def _runs(policy: Policy) -> int:
    """Runs of a kernel in each process."""
    return 1 + policy.warmup + policy.samples


def _guess(policy: Policy) -> float:
    """Samples of the least length, in the least number of rounds."""
    samples = (policy.samples + policy.warmup) * policy.min_sample_us * 1e-6
    return policy.min_rounds * (GUESSED_START_S + 2 * samples)


def _with_guesses(durations: Iterable[float | None], guesses: Iterable[float]) -> list[float]:
    return [g if d is None else d for d, g in zip(durations, guesses, strict=True)]


def _part(seconds: float, durations: Sequence[float | None]) -> Part:
    guessed = sum(duration is None for duration in durations)
    return Part(seconds, len(durations) - guessed, guessed)
