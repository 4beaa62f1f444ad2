"""Runs a comparison: builds and verifies the contenders, then races them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kernloom.base.errors import ConfigError, DeviceError, KernloomError
from kernloom.base.files import canonical_json
from kernloom.base.gauges import TIME, Gauge
from kernloom.build.builder import Builder, Outcome
from kernloom.build.explain import Explanation
from kernloom.build.workspace import scratch_folder
from kernloom.config.schema import Experiment
from kernloom.measure import noise
from kernloom.measure.comparison import Compared, Entry, Race, counted, judged, paired, race
from kernloom.measure.hidden import confirmed, hidden_work
from kernloom.measure.sampler import Sampler
from kernloom.measure.statistics import (
    RankingClock,
    interval_metrics,
    process_medians,
    timing,
)
from kernloom.measure.trial import Samples
from kernloom.plan.inspect import sizes_of, tensors_of
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.plan_conditions import injected_faults
from kernloom.run.progress import Progress
from kernloom.run.trials import Trials, status_of

CONTROL = " (control)"


@dataclass
class Contender:
    """One side of a comparison."""

    name: str
    """As given; duplicates get a number."""
    plan: Planned | None = None
    stored: Mapping[str, Path] = field(default_factory=dict)
    """Key of a substituted artifact -> the file of a stored trial that is run instead."""
    problem: KernloomError | None = None
    fixed: bool = False
    """From a recipe or the store: common overrides do not apply to it."""
    notes: list[str] = field(default_factory=list)
    """Notes for people."""


def compare(
    assembly: Assembly,
    contenders: Sequence[Contender],
    groups: Sequence[Sequence[str]],
    progress: Progress,
    *,
    control: bool = False,
) -> Compared:
    """Build, verify and race; if a contender fails, the others continue.

    In each group all are compared with the first that is ready, in rounds of their own.
    """
    outcomes = _built(
        contenders,
        assembly.builder(),
        lambda done, total: progress.update("building", done, total),
    )
    found = Compared([Entry(contender.name) for contender in contenders], [])
    entries = {entry.name: entry for entry in found.entries}
    again = groups[0][0] + CONTROL if control and groups else ""
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(assembly.places.build))
        trials = Trials(assembly, outcomes, scratch)
        samplers: dict[str, Sampler] = {}
        for number, contender in enumerate(contenders):
            progress.update("verifying", number, len(contenders))
            entry = entries[contender.name]
            try:
                samplers[contender.name] = _sampler(contender, trials, stack)
                if contender.name + CONTROL == again:
                    samplers[again] = _sampler(contender, trials, stack)
            except KernloomError as error:
                entry.status, entry.message = status_of(error), str(error)
            if contender.plan:
                entry.artifacts = [
                    {"name": artifact.name, "key": artifact.key}
                    for artifact in contender.plan.artifacts
                ]
        fit = [[name for name in group if name in samplers] for group in groups]
        ready = [group for group in fit if len(group) > 1]
        if again in samplers and ready:
            ready[0].append(again)
        found.notes += _notes(contenders, groups, ready)
        if ready:
            _measure(found, samplers, ready, progress)
    progress.clear()
    return found


def _sampler(contender: Contender, trials: Trials, stack: ExitStack) -> Sampler:
    """A verified contender, ready to be measured."""
    if contender.problem:
        raise contender.problem
    plan = contender.plan
    if plan is None:
        raise ConfigError(f"{contender.name} has no plan")
    bench = stack.enter_context(trials.bench(plan))
    trials.verify(plan, bench)
    return Sampler(bench, plan.steps, plan.experiment.measure)


def _measure(
    found: Compared,
    samplers: dict[str, Sampler],
    groups: Sequence[Sequence[str]],
    progress: Progress,
) -> None:
    policy = samplers[groups[0][0]].policy
    found.policy = policy.name
    found.gauge = _common_gauge(samplers.values())
    if found.gauge.exact:
        _compare_exact(found, samplers, groups, policy.floor)
        return
    found.clock = _common_clock(samplers.values(), found.gauge)
    load = noise.load()
    total = sum(len(group) - 1 for group in groups)
    ratios: dict[tuple[str, str], list[float]] = {}
    for number, group in enumerate(groups, 1):
        which = f" of {number}/{len(groups)}" if len(groups) > 1 else ""
        pairs = [(group[0], other) for other in group[1:]]
        done = race(
            {name: samplers[name] for name in group},
            pairs,
            policy,
            found.clock,
            partial(_progress, progress, f"comparing, round{which}", policy.max_rounds),
            comparisons=total,
        )
        for name, samples in done.samples.items():
            if name not in done.problems and (doubt := _suspicion(samples, samplers[name])):
                done.problems[name] = doubt
        ratios |= paired(done, pairs, found.clock, found.gauge)
        _note_samples(found, done, samplers, load)
        if done.ended:
            found.notes.append(f"{group[0]}: not as precise as asked: {done.ended}")
    judgements = judged(ratios, policy.floor)
    found.comparisons = [item for item in judgements if not item.b.endswith(CONTROL)]
    found.control = next((item for item in judgements if item.b.endswith(CONTROL)), None)
    if found.control and found.control.verdict in ("faster", "slower"):
        found.notes.append(
            f"the control differs from itself by {abs(1 - found.control.speedup):.1%}: this "
            "machine is too unsteady now, so do not trust the verdicts"
        )


def _suspicion(samples: Sequence[Samples], sampler: Sampler) -> KernloomError | None:
    """Why the samples of one of them are not believed."""
    try:
        suspicions = confirmed(hidden_work(samples, sampler), sampler, sampler.sample)
    except KernloomError as error:
        return error
    return DeviceError("; ".join(suspicions), status="suspicious") if suspicions else None


def _common_gauge(samplers: Iterable[Sampler]) -> Gauge:
    """The gauge that all of them are ranked by."""
    gauges = {sampler.gauge.name: sampler.gauge for sampler in samplers}
    if len(gauges) > 1:
        names = " and ".join(gauge.heading for gauge in gauges.values())
        raise ConfigError(
            f"their devices measure different things ({names}): these cannot be compared",
            key="target",
        )
    (gauge,) = gauges.values()
    return gauge


def _common_clock(samplers: Iterable[Sampler], gauge: Gauge) -> RankingClock:
    """The series of samples that all of them have: if one needs wall time, all use it."""
    if gauge != TIME:
        return gauge.name
    return "wall" if any(sampler.clock == "wall" for sampler in samplers) else "cpu"


def _progress(progress: Progress, phase: str, most: int, round: int) -> None:
    progress.update(phase, round, most)


def _note_samples(
    found: Compared, done: Race, samplers: Mapping[str, Sampler], load: float
) -> None:
    """Record the contenders' measurements, and warnings about them."""
    for entry in found.entries:
        if problem := done.problems.get(entry.name):
            entry.status, entry.message = status_of(problem), str(problem)
        elif samples := done.samples.get(entry.name):
            entry.metrics = interval_metrics(found.gauge, timing(samples, found.clock))
            entry.rounds = process_medians(samples, found.clock)
            threads = samplers[entry.name].threads
            warnings = noise.warnings_of(samples, found.clock, threads, max(load, noise.load()))
            found.notes += [f"{entry.name}: {text}" for text in warnings]


def _compare_exact(
    found: Compared,
    samplers: dict[str, Sampler],
    groups: Sequence[Sequence[str]],
    floor: float,
) -> None:
    """Exact gauges need one run and no control."""
    gauge = found.gauge
    counts: dict[str, float] = {}
    for entry in found.entries:
        if entry.name not in samplers:
            continue
        try:
            entry.metrics = samplers[entry.name].exact()
            counts[entry.name] = entry.metrics[gauge.name]
        except KernloomError as error:
            entry.status, entry.message = status_of(error), str(error)
    found.comparisons = [
        counted(group[0], other, counts, floor, gauge)
        for group in groups
        for other in group[1:]
        if group[0] in counts and other in counts
    ]
    if any(name.endswith(CONTROL) for name in samplers):
        found.notes.append("counts are exact: there is nothing to control")


def _notes(
    contenders: Sequence[Contender],
    groups: Sequence[Sequence[str]],
    ready: Sequence[Sequence[str]],
) -> list[str]:
    """Notes on comparisons that differ from what was asked for."""
    firsts = {group[0] for group in groups}
    notes = [
        f"compared with '{group[0]}', for the first one failed"
        for group in ready
        if group[0] not in firsts
    ]
    notes += dict.fromkeys(note for contender in contenders for note in contender.notes)
    plans = {contender.name: contender.plan for contender in contenders}
    works = [[plan.experiment for name in group if (plan := plans.get(name))] for group in ready]
    if any(len({work.workload.name for work in group}) > 1 for group in works):
        notes.append("these are different workloads: the ratios compare times of different work")
    elif any(len({_work(work) for work in group}) > 1 for group in works):
        notes.append(
            "these are different sizes or types: the ratios compare times of different work"
        )
    if any(len({work.target.name for work in group}) > 1 for group in works):
        notes.append(
            "these are different targets: their clocks, or what an instruction does, differ"
        )
    if any(work.target.is_sanitized for group in works for work in group):
        notes.append("some of these are built with a sanitizer: their times mean nothing")
    faults = dict.fromkeys(injected_faults(work.target) for group in works for work in group)
    if any(faults):
        notes.append(f"some of these have injected faults: {'; '.join(filter(None, faults))}")
    artifacts = [[plan.artifacts for name in group if (plan := plans.get(name))] for group in ready]
    keys = [[{a.key for a in found} for found in group] for group in artifacts]
    if any(group.count(group[0]) == len(group) > 1 for group in keys):
        notes.append("all of them run the same artifacts")
    return notes


def _work(experiment: Experiment) -> str:
    """All facts that determine the amount of work."""
    workload = experiment.workload
    tensors = {name: [tensor.shape, tensor.dtype] for name, tensor in tensors_of(workload).items()}
    return canonical_json([workload.name, sizes_of(workload), tensors])


def unchanged(before: Contender, now: Contender) -> bool:
    """Whether both would run the same artifacts on the same data."""
    if not before.plan or not now.plan or before.stored:
        return False
    plans = (before.plan, now.plan)
    keys = [{artifact.key for artifact in plan.artifacts} for plan in plans]
    data = [
        canonical_json(
            [
                {name: plan.point.data.get(name) for name in ("workload", "case", "seed")},
                plan.placement,
                plan.device_facts,
            ]
        )
        for plan in plans
    ]
    return keys[0] == keys[1] and data[0] == data[1]


def _built(
    contenders: Sequence[Contender], builder: Builder, progress: Callable[[int, int], None]
) -> dict[str, Outcome]:
    """Build what the contenders need, except for stored artifacts."""
    wanted = {
        artifact.key: artifact
        for contender in contenders
        if contender.plan
        for artifact in contender.plan.artifacts
    }
    brought = {key: path for contender in contenders for key, path in contender.stored.items()}
    outcomes = builder.build((a for key, a in wanted.items() if key not in brought), progress)
    why = Explanation("kept", "run as it was stored")
    for key, path in brought.items():
        outcomes[key] = Outcome(wanted[key], path, True, 0.0, True, "", path, why)
    return outcomes
