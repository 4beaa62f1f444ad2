"""Runs planned trials in turns: device, bench, run stages; every failure becomes a status."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, DeviceError, KernloomError, UnavailableError
from kernloom.base.expressions import parse_size
from kernloom.base.files import sha256_text
from kernloom.base.gauges import TIME, leading_gauge
from kernloom.base.machine import available_memory, machine_class
from kernloom.build.admission import Admissions, summary, system_groups
from kernloom.build.builder import Outcome
from kernloom.config.schema import Target
from kernloom.device.contract import Device, DeviceSetup, Look, require
from kernloom.device.devices import DEVICES
from kernloom.device.sessions import SessionSlots
from kernloom.measure.bench import Bench
from kernloom.measure.data import DataSets
from kernloom.measure.peers import Measurable, Peer, Peers
from kernloom.measure.sampler import Sampler, threads_of, with_clock
from kernloom.measure.statistics import chosen_clock
from kernloom.measure.trial import Trial
from kernloom.measure.turns import in_turns
from kernloom.pipeline.stage import SUSPICIONS, Context
from kernloom.plan.artifact import Artifact
from kernloom.plan.planned import Planned, PlannedPeer
from kernloom.plan.source import ENTRY
from kernloom.run.assembly import Assembly
from kernloom.run.plan_conditions import plan_conditions
from kernloom.run.planning import replanned

OUT_OF_MEMORY_MESSAGE = "the engine ran out of memory"
MEMORY_LEFT = "memory_left"
"""Condition of a trial that ran out of memory: the bytes it had."""


@dataclass(frozen=True)
class _Shared:
    """The peers of trials that take turns, and the stack that closes their benches."""

    benches: ExitStack
    known: dict[str, Peer] = field(default_factory=dict)


class Trials:
    """Resources that the trials of a run share: data, devices, session slots."""

    def __init__(
        self, assembly: Assembly, outcomes: Mapping[str, Outcome], scratch: Path | None = None
    ) -> None:
        """Kernels run in folders below `scratch`."""
        self._assembly = assembly
        self._scratch = scratch
        self._outcomes: dict[str, Outcome] = {}
        self._paths: dict[str, Path] = {}
        self._entries: dict[str, str] = {}
        self._renewed: dict[str, Artifact] = {}
        """Planned key -> the artifact built instead, because files outside had changed."""
        self.built(outcomes)
        self._admissions = Admissions()
        self._data = DataSets(assembly.places.roots)
        self._memory_left = available_memory()
        # The last core: the system's own work tends to be on the first ones.
        self._core = max(os.sched_getaffinity(0))
        self._devices: dict[tuple[Any, ...], Device] = {}
        self._session_slots: dict[tuple[str, int], SessionSlots] = {}

    def built(self, outcomes: Mapping[str, Outcome]) -> None:
        """Add the outcomes of further builds."""
        self._renewed.update(
            (key, found.artifact) for key, found in outcomes.items() if found.artifact.key != key
        )
        outcomes = {**outcomes, **{found.artifact.key: found for found in outcomes.values()}}
        self._outcomes.update(outcomes)
        self._paths.update((key, found.path) for key, found in outcomes.items())
        self._entries.update(
            (key, found.entry) for key, found in outcomes.items() if found.entry != ENTRY
        )

    def in_turns(
        self, plans: Sequence[Planned], turn: Callable[[int], None] = lambda round: None
    ) -> Iterator[tuple[Planned, Trial]]:
        """Run trials, round by round in turns; yields each as it ends."""
        with ExitStack() as benches:
            shared = _Shared(benches)
            turns = [self._turns(plan, shared) for plan in plans]
            shuffled = plans[0].experiment.measure.max_rounds > 1
            for number, trial in in_turns(turns, shuffled=shuffled, turn=turn):
                yield plans[number], trial

    def _turns(self, plan: Planned, shared: _Shared) -> Generator[float | None, None, Trial]:
        created = datetime.now(UTC)
        start = time.monotonic()
        if plan.refusal:
            refusal = plan.refusal
            return trial_of(
                plan,
                self._outcomes,
                created,
                status=refusal.status,
                verified=False,
                stage=refusal.stage,
                message=str(refusal.error),
            )
        plan = self._replanned(plan)
        outputs: dict[str, Any] = dict(plan.outputs)
        problem: KernloomError | None = None
        seconds = 0.0
        try:
            self.check_built(plan)
            with self.bench(plan) as bench:
                services = {Bench: bench, Peers: self._peers(plan, shared)}
                context = Context(plan.experiment, {**self._assembly.planning_services, **services})
                for pause in plan.graph.turns("run", context, outputs):
                    seconds += time.monotonic() - start
                    yield pause
                    start = time.monotonic()
        except KernloomError as error:
            problem = error
        except MemoryError:
            problem = DeviceError(OUT_OF_MEMORY_MESSAGE, status="out_of_memory")
        seconds += time.monotonic() - start
        ended = _ended(plan, outputs, problem)
        ended["conditions"] |= plan_conditions(plan)
        if ended["status"] == "out_of_memory":
            ended["conditions"] |= {MEMORY_LEFT: self._memory_left}
        return trial_of(plan, self._outcomes, created, **ended, seconds=round(seconds, 6))

    def _replanned(self, plan: Planned) -> Planned:
        """The plan with the artifacts that were built instead of the planned ones."""
        if not self._renewed:
            return plan
        return replanned(plan, self._renewed, self._assembly.results)

    def verify(self, plan: Planned, bench: Bench) -> None:
        """Execute the run stages of a plan that measures nothing."""
        self.check_built(plan)
        self._verify(plan, bench)

    def _verify(self, plan: Planned, bench: Bench) -> None:
        context = Context(plan.experiment, {**self._assembly.planning_services, Bench: bench})
        plan.graph.run("run", context, dict(plan.outputs))
        bench.close()

    def check_built(self, plan: Planned) -> None:
        """Refuse a plan whose artifacts failed to compile, with the compiler's message, or contain
        what no kernel may."""
        self._check_compiled(plan)
        for artifact in plan.artifacts:
            if artifact.kind != "kernel":
                continue
            outcome = self._outcomes[artifact.key]
            allow = plan.experiment.workload.allow
            if reasons := self._admissions.reasons(outcome.artifact, outcome.path, allow):
                message = summary(artifact.name, outcome.path, reasons)
                error = DeviceError(message, status="refused", code="forbidden")
                error.stage = _compile_stage(plan, artifact)
                raise error

    def _check_compiled(self, plan: Planned) -> None:
        for artifact in plan.artifacts:
            outcome = self._outcomes[artifact.key]
            if not outcome.ok:
                said = outcome.message.strip()
                message = f"{outcome.source} does not compile:\n{said}"
                if outcome.stopped:
                    message = f"the compiler of {outcome.source} was {said}"
                error = DeviceError(message, status="build_failed")
                error.stage = _compile_stage(plan, artifact)
                raise error

    def bench(
        self,
        plan: Planned,
        libraries: tuple[Path, ...] = (),
        settings: Mapping[str, str] | None = None,
    ) -> Bench:
        """A bench on which a planned workload can be launched; `settings` change a simulated
        platform."""
        device = self._device(plan, libraries, settings or {})
        slots = self._slots(plan.experiment.target)
        return Bench(
            plan.experiment,
            device,
            plan.data if isinstance(plan.data, DataSets) else self._data,
            self._paths,
            slots,
            plan.placement,
            self._entries,
            self._memory_limit(plan),
            plan.orchestration,
            bool(libraries),
        )

    def _peers(self, plan: Planned, shared: _Shared) -> Peers:
        named = {}
        for name, planned in plan.peers.items():
            if planned.identity not in shared.known:
                make = partial(self._measurable, plan, planned, shared.benches)
                shared.known[planned.identity] = Peer(make)
            named[name] = shared.known[planned.identity]
        return Peers(named)

    def _measurable(self, plan: Planned, planned: PlannedPeer, benches: ExitStack) -> Measurable:
        experiment = plan.experiment
        threads = threads_of(plan.steps)
        if planned.plan is None:
            from kernloom.measure.numpy_peer import NumpyPeer

            return NumpyPeer(
                experiment.workload,
                experiment.seed,
                self._assembly.places.roots,
                experiment.measure,
                threads=threads,
                pin=self._pin(plan),
                timeout=experiment.timeout,
            )
        if planned.libraries:
            # Its kernels are Kernloom's own, and call the library that the peer stands for.
            self._check_compiled(planned.plan)
        else:
            self.check_built(planned.plan)
        bench = benches.enter_context(self.bench(planned.plan, planned.libraries))
        self._verify(planned.plan, bench)
        return Sampler(bench, planned.plan.steps, experiment.measure)

    def _slots(self, target: Target) -> SessionSlots:
        """A target's slots are shared by all its trials, and by all runs in this project."""
        key = (target.name, target.sessions)
        if key not in self._session_slots:
            folder = self._assembly.places.build / "sessions" / sha256_text(target.name)[:16]
            self._session_slots[key] = SessionSlots(target.sessions, folder)
        return self._session_slots[key]

    def _memory_limit(self, plan: Planned) -> int:
        limit = plan.experiment.memory_limit
        return self._memory_left if limit is None else parse_size(limit, key="memory_limit")

    def _pin(self, plan: Planned) -> int | None:
        """The core that a trial's kernels are pinned to."""
        return self._core if plan.experiment.measure.pin else None

    def _device(
        self, plan: Planned, libraries: tuple[Path, ...], settings: Mapping[str, str]
    ) -> Device:
        """The device of a trial; trials that need the same one share it."""
        experiment, threads = plan.experiment, threads_of(plan.steps)
        policy = experiment.measure
        key = (
            *(experiment.target.digest, experiment.arch.digest, experiment.memory_limit, threads),
            *(policy.pin, policy.aslr, policy.clock, policy.cache),
            *(experiment.runtime.digest, experiment.trace, experiment.trace_level),
            *(experiment.deps, experiment.replay),
            *(program.key for program in plan.programs.values()),
            *libraries,
            system_groups(experiment.workload.allow),
            *sorted(settings.items()),
        )
        if key not in self._devices:
            # All threads that a library starts by itself would be pinned to the same core.
            pin = None if libraries and threads > 1 else self._pin(plan)
            self._devices[key] = self._made(plan, pin, libraries, settings)
        return self._devices[key]

    def _made(
        self,
        plan: Planned,
        pin: int | None,
        libraries: tuple[Path, ...],
        settings: Mapping[str, str],
    ) -> Device:
        target = plan.experiment.target
        device = DEVICES.get(target.device, key="target.device").from_setup(
            DeviceSetup(
                {role: self._paths[program.key] for role, program in plan.programs.items()},
                target,
                plan.experiment.arch,
                runtime=plan.experiment.runtime,
                look=Look.of(plan.experiment),
                settings=settings,
                pin=pin,
                cache=self._assembly.places.cache,
                aslr=plan.experiment.measure.aslr,
                memory_limit=self._memory_limit(plan),
                libraries=libraries,
                scratch=self._scratch,
                sandbox=system_groups(plan.experiment.workload.allow),
            )
        )
        require(device, *_needed(plan, device), *(["libraries"] if libraries else []))
        return device


def _needed(plan: Planned, device: Device) -> list[str]:
    """The capabilities that a trial needs of its device."""
    threads, policy = threads_of(plan.steps), plan.experiment.measure
    gauge, needed = leading_gauge(device.gauges), ["memory", "launch"]
    if not gauge.exact:
        needed.append("calibrate")
        if TIME in device.gauges:
            needed.append(f"{chosen_clock(with_clock(policy, device).clock, threads)}_clock")
        if policy.cache == "cold":
            needed.append("cold_cache")
    return [*needed, "threads"] if threads > 1 else needed


def _ended(
    plan: Planned, outputs: Mapping[str, Any], problem: KernloomError | None
) -> dict[str, Any]:
    """The stages' results for a trial, as far as they ran."""

    def merged(kind: str) -> dict[str, Any]:
        found = plan.graph.of_type(kind, outputs)
        return {name: value for part in found for name, value in part.items()}

    verdicts = plan.graph.of_type("verified", outputs)
    verified = bool(verdicts) and all(verdicts)
    warnings = tuple(w for found in plan.graph.of_type("warnings", outputs) for w in found)
    found = {
        "metrics": merged("metrics"),
        "samples": tuple(s for found in plan.graph.of_type("samples", outputs) for s in found),
        "warnings": warnings,
        "conditions": merged("conditions"),
    }
    if problem:
        status = status_of(problem)
        return found | {
            "status": status,
            "verified": verified and status != "wrong",
            "stage": problem.stage or "run",
            "message": str(problem),
            "stderr": getattr(problem, "stderr", ""),
        }
    if suspicions := [s for part in plan.graph.of_type(SUSPICIONS, outputs) for s in part]:
        return found | {
            "status": "suspicious",
            "verified": verified,
            "stage": _first_suspicious(plan, outputs),
            "message": "; ".join(suspicions),
        }
    if all(plan.graph.of_type("converged", outputs)):
        return found | {"status": "ok", "verified": verified}
    return found | {
        "status": "unconverged",
        "verified": verified,
        "message": _why_unconverged(outputs),
    }


def _first_suspicious(plan: Planned, outputs: Mapping[str, Any]) -> str:
    """The first stage that does not believe the result."""
    return next(
        name
        for name, node in plan.graph.nodes.items()
        for output, kind in node.stage.outputs.items()
        if kind == SUSPICIONS and outputs.get(name, {}).get(output)
    )


def _why_unconverged(outputs: Mapping[str, Any]) -> str:
    """The first warning of the stage that did not converge."""
    parts = (part for part in outputs.values() if not part.get("converged", True))
    return next((part["warnings"][0] for part in parts if part.get("warnings")), "")


def status_of(error: KernloomError) -> str:
    """The status of a trial that ended with this error."""
    if isinstance(error, DeviceError):
        return error.status
    if isinstance(error, UnavailableError):
        return "unavailable"
    return "refused" if isinstance(error, ConfigError) else "crashed"


def _compile_stage(plan: Planned, artifact: Artifact) -> str:
    """The stage that declared an artifact."""
    tasks = plan.orchestration
    kind = "orchestration" if tasks and tasks.artifact.key == artifact.key else "artifacts"
    builds = [item for item in plan.graph.nodes.items() if item[1].stage.phase == "build"]
    return next((name for name, node in builds if kind in node.stage.outputs.values()), "build")


def trial_of(
    plan: Planned, outcomes: Mapping[str, Outcome], created: datetime, **ended: Any
) -> Trial:
    """The trial of a plan, from its ending and its builds."""
    experiment = plan.experiment
    return Trial(
        id=plan.id,
        workload=experiment.workload.name,
        case=experiment.case,
        target=experiment.target.name,
        point=plan.point.swept,
        params=plan.params,
        provider=plan.provider,
        placement=plan.placement,
        artifacts=tuple(
            {"name": name, "key": artifact.key, "cached": outcomes[artifact.key].cached}
            for name, artifact in plan.named_artifacts
            if artifact.key in outcomes
        ),
        config=plan.point.data,
        overrides=plan.point.words,
        facts=plan.facts.document(),
        sources=plan.sources,
        machine=machine_class() | ({"device": plan.device_facts} if plan.device_facts else {}),
        created=created.isoformat(timespec="milliseconds"),
        **ended,
    )
