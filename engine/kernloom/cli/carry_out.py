"""Carries out planned trials: reuses what is stored, builds the union once, runs, stores each."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernloom.build.builder import Builder, Outcome
from kernloom.cli.assembly import Assembly
from kernloom.cli.planning import Planned
from kernloom.cli.progress import Progress
from kernloom.config.schema import Target
from kernloom.device.contract import Device, DeviceSetup, require
from kernloom.device.devices import DEVICES
from kernloom.device.sessions import SessionPlaces
from kernloom.errors import ConfigError, DeviceError, KernloomError, UnavailableError
from kernloom.files import sha256_text
from kernloom.machine import machine_class
from kernloom.measure.bench import Bench
from kernloom.measure.data import DataSets
from kernloom.measure.rounds import threads_of, with_clock
from kernloom.measure.statistics import chosen_clock
from kernloom.measure.trial import Trial
from kernloom.pipeline.stage import Context
from kernloom.store.store import Store

REUSABLE = ("ok", "wrong", "crashed", "timeout", "out_of_bounds", "unconverged")
"""Statuses that say something about the trial itself; the others depend on the day."""
FROM_OUTSIDE = "SIGKILL"
"""A crash that somebody else caused, most often for lack of memory."""


@dataclass(frozen=True)
class BuildSummary:
    """What building took."""

    built: int = 0
    cached: int = 0
    failed: int = 0
    seconds: float = 0.0
    scons: int = 0
    """How often SCons was started."""


@dataclass
class Results:
    """The trials of a run in the order of their points, and what was built for them."""

    trials: list[Trial] = field(default_factory=list)
    build: BuildSummary = field(default_factory=BuildSummary)
    interrupted: bool = False


class Workshop:
    """Builds and runs planned trials, one after the other."""

    def __init__(self, assembly: Assembly, store: Store | None, progress: Progress) -> None:
        self._assembly = assembly
        self._store = store
        self._progress = progress
        self._data = DataSets(assembly.places.roots)
        self._devices: dict[tuple[Any, ...], Device] = {}
        self._session_places: dict[tuple[str, int], SessionPlaces] = {}
        self._made: Builder | None = None

    def carry_out(self, plans: Sequence[Planned]) -> Results:
        """All trials. Ctrl-C ends it early; what is finished is kept and returned."""
        results = Results()
        try:
            known = self._stored(plans)
            waiting = [plan for plan in plans if plan.id not in known]
            outcomes = self._build(waiting, results)
            self._count_spared([plan for plan in plans if plan.id in known], outcomes, results)
            paths = {key: outcome.path for key, outcome in outcomes.items()}
            for number, plan in enumerate(plans):
                if plan.id in known:
                    trial = self._reused(known[plan.id], plan)
                else:
                    self._progress.update("running", number, len(plans))
                    trial = self._trial(plan, outcomes, paths)
                    if self._store:
                        self._store.add(trial)
                    known[plan.id] = trial
                results.trials.append(trial)
        except KeyboardInterrupt:
            results.interrupted = True
        finally:
            self._progress.clear()
        return results

    def _stored(self, plans: Sequence[Planned]) -> dict[str, Trial]:
        """Trials that need not be carried out again."""
        if not self._store or not plans:
            return {}
        wanted = [
            plan.id for plan in plans if plan.experiment.rerun != "all" and plan.refusal is None
        ]
        found = self._store.latest(wanted)
        rerun = {plan.id: plan.experiment.rerun for plan in plans}
        return {
            key: trial
            for key, trial in found.items()
            if _lasting(trial) and (rerun[key] == "none" or trial.good)
        }

    def _reused(self, trial: Trial, plan: Planned) -> Trial:
        """A stored trial as one of this run; whether its artifacts are still there is looked up."""
        artifacts = tuple(
            {"name": item.name, "key": item.key, "cached": self._builder(plan).state(item).cached}
            for item in plan.artifacts
        )
        return replace(trial, point=plan.point.swept, artifacts=artifacts, reused=True)

    def _count_spared(
        self, reused: Sequence[Planned], outcomes: Mapping[str, Outcome], results: Results
    ) -> None:
        """Count the artifacts that stored trials have and nobody had to build."""
        spared = {item.key: (plan, item) for plan in reused for item in plan.artifacts}
        there = sum(
            self._builder(plan).state(item).cached
            for key, (plan, item) in spared.items()
            if key not in outcomes
        )
        results.build = replace(results.build, cached=results.build.cached + there)

    def _builder(self, plan: Planned) -> Builder:
        if self._made is None:
            self._made = self._assembly.builder(plan.experiment)
        return self._made

    def _build(self, plans: Sequence[Planned], results: Results) -> dict[str, Outcome]:
        """Everything that any of the trials needs, in one go."""
        artifacts = {item.key: item for plan in plans for item in plan.artifacts}
        if not artifacts:
            return {}
        builder = self._builder(plans[0])
        start = time.monotonic()
        outcomes = builder.build(
            artifacts.values(),
            lambda done, total: self._progress.update("building", done, total),
        )
        self._progress.clear()
        built = sum(not outcome.cached and outcome.ok for outcome in outcomes.values())
        failed = sum(not outcome.ok for outcome in outcomes.values())
        results.build = BuildSummary(
            built=built,
            cached=sum(outcome.cached for outcome in outcomes.values()),
            failed=failed,
            seconds=round(time.monotonic() - start, 3),
            scons=int(built + failed > 0),
        )
        return outcomes

    def _trial(
        self, plan: Planned, outcomes: Mapping[str, Outcome], paths: Mapping[str, Path]
    ) -> Trial:
        start = time.monotonic()
        trial = _blank(plan, outcomes)
        failed = next((o for a in plan.artifacts if not (o := outcomes[a.key]).ok), None)
        if plan.refusal:
            refusal = plan.refusal
            trial = replace(
                trial, status=refusal.status, stage=refusal.stage, message=str(refusal.error)
            )
        elif failed:
            message = f"{failed.source} does not compile:\n{failed.message.strip()}"
            trial = replace(
                trial, status="build_failed", stage=_compile_stage(plan), message=message
            )
        else:
            trial = self._run(plan, trial, paths)
        return replace(trial, seconds=round(time.monotonic() - start, 6))

    def _run(self, plan: Planned, trial: Trial, paths: Mapping[str, Path]) -> Trial:
        """The run phase; whatever goes wrong there is the trial's status."""
        experiment = plan.experiment
        outputs: dict[str, Any] = dict(plan.outputs)
        problem: KernloomError | None = None
        try:
            device = self._device(plan, paths)
            places = self._places(experiment.target)
            with Bench(experiment, device, self._data, paths, places, plan.placement) as bench:
                context = Context(experiment, {**self._assembly.planning_services, Bench: bench})
                plan.graph.run("run", context, outputs)
        except KernloomError as error:
            problem = error
        except MemoryError:
            problem = DeviceError("the engine ran out of memory", status="out_of_memory")
        verified = plan.graph.of_type("verified", outputs)
        metrics = plan.graph.of_type("metrics", outputs)
        samples = plan.graph.of_type("samples", outputs)
        trial = replace(
            trial,
            verified=bool(verified) and all(verified),
            metrics={name: value for found in metrics for name, value in found.items()},
            samples=tuple(process for found in samples for process in found),
        )
        if problem:
            status = _status(problem)
            return replace(
                trial,
                status=status,
                verified=trial.verified and status != "wrong",
                stage=problem.stage or "run",
                message=str(problem),
                stderr=getattr(problem, "stderr", ""),
            )
        converged = all(plan.graph.of_type("converged", outputs))
        return replace(trial, status="ok" if converged else "unconverged")

    def _places(self, target: Target) -> SessionPlaces:
        """Those of a target are shared by all of its trials, and by every run in this project."""
        key = (target.name, target.sessions)
        if key not in self._session_places:
            folder = self._assembly.places.build / "sessions" / sha256_text(target.name)[:16]
            self._session_places[key] = SessionPlaces(target.sessions, folder)
        return self._session_places[key]

    def _device(self, plan: Planned, paths: Mapping[str, Path]) -> Device:
        """The device of a trial; trials that need the same one share it."""
        target, arch = plan.experiment.target, plan.experiment.arch
        make = DEVICES.get(target.device, key="target.device")
        # The last core: the first ones are where the system's own work tends to be.
        pin = max(os.sched_getaffinity(0)) if plan.experiment.measure.pin else None
        programs = {role: paths[program.key] for role, program in plan.programs.items()}
        key = (target.device, *programs.values(), id(target), id(arch), pin)
        if key not in self._devices:
            self._devices[key] = make.made(
                DeviceSetup(programs, target, arch, pin=pin, cache=self._assembly.places.cache)
            )
        require(self._devices[key], *_needed(plan, self._devices[key]))
        return self._devices[key]


def _needed(plan: Planned, device: Device) -> list[str]:
    """The capabilities that a trial asks of its device."""
    threads = threads_of(plan.steps)
    if plan.experiment.target.emulator:
        needed = ["memory", "launch", "instructions"]
        return [*needed, "threads"] if threads > 1 else needed
    clock = chosen_clock(with_clock(plan.experiment.measure, device).clock, threads)
    needed = ["memory", "launch", "calibrate", f"{clock}_clock"]
    return [*needed, "threads"] if threads > 1 else needed


def _lasting(trial: Trial) -> bool:
    """Whether a stored trial would end the same way if it were carried out again."""
    by_kill = trial.status == "crashed" and FROM_OUTSIDE in trial.message
    return trial.status in REUSABLE and not by_kill


def _status(error: KernloomError) -> str:
    if isinstance(error, DeviceError):
        return error.status
    if isinstance(error, UnavailableError):
        return "unavailable"
    return "refused" if isinstance(error, ConfigError) else "crashed"


def _compile_stage(plan: Planned) -> str:
    return next((n for n, node in plan.graph.nodes.items() if node.stage.phase == "build"), "build")


def _blank(plan: Planned, outcomes: Mapping[str, Outcome]) -> Trial:
    """The trial before it has been carried out."""
    experiment = plan.experiment
    return Trial(
        id=plan.id,
        workload=experiment.workload.name,
        case=experiment.case,
        target=experiment.target.name,
        status="ok",
        verified=False,
        point=plan.point.swept,
        params=plan.params,
        provider=plan.provider,
        placement=plan.placement,
        artifacts=tuple(
            {"name": artifact.name, "key": artifact.key, "cached": outcomes[artifact.key].cached}
            for artifact in plan.artifacts
        ),
        config=plan.point.data,
        machine=machine_class() | ({"device": plan.facts} if plan.facts else {}),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def exit_code(trials: Sequence[Trial], *, interrupted: bool = False) -> int:
    """0 only if everything verified; 3 if all that failed was not available here."""
    if interrupted:
        return 130
    bad = [trial for trial in trials if not trial.good]
    if not bad:
        return 0
    return 3 if all(trial.status == "unavailable" for trial in bad) else 1
