"""Runs draws of planned workloads: plans and builds them, verifies them, reports failures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random

from kernloom.base.errors import ConfigError, DeviceError, KernloomError, nearest
from kernloom.base.units import count
from kernloom.build.workspace import scratch_folder
from kernloom.config.overrides import Overrides
from kernloom.device.devices import DEVICES
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.plan.schedule import ELEMENT
from kernloom.run.assembly import Assembly
from kernloom.run.execution import Building, BuildSummary
from kernloom.run.fuzzing.cases import FuzzCase, SavedDraw, command_of, save_case
from kernloom.run.fuzzing.draws import Draw, Drawing
from kernloom.run.fuzzing.judging import FuzzData
from kernloom.run.fuzzing.reducing import Failure, Reduction
from kernloom.run.fuzzing.verifying import DRAWS_PER_SESSION, Drawn, DrawVerifier
from kernloom.run.planning import MEASURING, plan_points
from kernloom.run.progress import Progress
from kernloom.run.trials import Trials, status_of, trial_of

MAX_FAILURES = 5
"""Failing draws after which the rest is left out."""
TRIES = 4
"""Attempts for each draw, since not every one can be planned."""
UNALIGNED = "unaligned"
"""Capability of devices that place a tensor at any multiple of an element."""


@dataclass
class Refused:
    """Draws that could not be planned."""

    count: int = 0
    first: KernloomError | None = None

    def add(self, error: KernloomError) -> None:
        self.count += 1
        self.first = self.first or error


@dataclass
class FuzzResults:
    """One trial for each planned workload."""

    trials: list[Trial] = field(default_factory=list)
    build: BuildSummary = field(default_factory=BuildSummary)
    draws: int = 0
    """Draws that were verified, also those that failed."""
    failed: int = 0
    interrupted: bool = False


class Fuzzer:
    """Verifies draws of workloads on their targets."""

    def __init__(self, assembly: Assembly, progress: Progress, draws: int, seed: int) -> None:
        self._assembly = assembly
        self._progress = progress
        self._draws = draws
        self._seed = seed
        self._data = FuzzData(assembly.places.roots)

    def run(self, plans: Sequence[Planned]) -> FuzzResults:
        results = FuzzResults()
        try:
            with scratch_folder(self._assembly.places.build) as scratch:
                for number, plan in enumerate(plans):
                    self._phase = f"fuzzing {number + 1}/{len(plans)}"
                    results.trials.append(self._fuzzed(plan, results, scratch))
                    self._progress.ended(results.trials[-1])
        except KeyboardInterrupt:
            results.interrupted = True
        finally:
            self._progress.clear()
        return results

    def _fuzzed(self, base: Planned, results: FuzzResults, scratch: Path | None) -> Trial:
        created, start = datetime.now(UTC), time.monotonic()
        if base.refusal:
            refusal = base.refusal
            return _trial(base, created, start, refusal.error, {}, status=refusal.status)
        drawing = Drawing(base.experiment.workload, unaligned=_unaligned(base))
        building = Building(lambda plan: self._assembly.builder(plan.experiment), self._progress)
        trials = Trials(self._assembly, {}, scratch)
        refused = Refused()
        failures: list[Failure] = []
        verified = 0
        with closing(DrawVerifier(trials, self._data)) as verifier:
            for batch in self._batches(base, drawing, refused):
                trials.built(building([item.plan for item in batch]))
                found = self._failures(verifier, batch, verified, results)
                failures += islice(found, MAX_FAILURES - len(failures))
                if len(failures) >= MAX_FAILURES:
                    verified = failures[-1].number
                    break
                verified += len(batch)
            results.build = results.build.plus(building.summary)
            if not verified:
                error = refused.first or KernloomError("nothing could be drawn")
                return _trial(base, created, start, error, {}, status="refused")
            metrics = {"draws": verified, "failed_draws": len(failures)}
            if not failures:
                trial = _trial(base, created, start, None, metrics)
            else:
                error = self._reported(base, verifier, failures, verified, building, trials)
                trial = _trial(base, created, start, error, metrics, status=failures[0].status)
        return replace(trial, warnings=_warnings(drawing, verified, refused))

    def _batches(self, base: Planned, drawing: Drawing, refused: Refused) -> Iterator[list[Drawn]]:
        """Draws that can be planned, some at a time; adds those that cannot."""
        workload = base.experiment.workload.name
        random = Random(f"{self._seed} {workload} {base.experiment.case}")  # noqa: S311
        drawn: list[Drawn] = []
        planned = 0
        for _ in range(TRIES * self._draws):
            if planned == self._draws:
                break
            found = self._plan(base, drawing.draw(random))
            if isinstance(found, KernloomError):
                refused.add(found)
                continue
            drawn.append(found)
            planned += 1
            self._progress.update(self._phase, planned, self._draws, "planning")
            if len(drawn) == DRAWS_PER_SESSION:
                yield drawn
                drawn = []
        if drawn:
            yield drawn

    def _plan(self, base: Planned, draw: Draw) -> Drawn | KernloomError:
        overrides = Overrides(base.point.overrides.items, multirun=True).then(draw.overrides())
        return planned_draw(self._assembly, overrides, draw, self._data)

    def _failures(
        self,
        verifier: DrawVerifier,
        drawn: Sequence[Drawn],
        verified: int,
        results: FuzzResults,
    ) -> Iterator[Failure]:
        """The failures of a batch; so many draws before it have been verified."""
        for number, item in enumerate(drawn, verified + 1):
            workload, target = item.plan.brief.workload, item.plan.brief.target
            self._progress.update(self._phase, number, self._draws, f"{workload} on {target}")
            before = tuple(verifier.before)
            error = verifier.verify(item)
            results.draws += 1
            if error is not None:
                results.failed += 1
                yield Failure(item, error, number, before)

    def _reported(
        self,
        base: Planned,
        verifier: DrawVerifier,
        failures: Sequence[Failure],
        verified: int,
        building: Building,
        trials: Trials,
    ) -> KernloomError:
        """The first failure at its smallest, saved as a case."""

        def built(draw: Draw) -> Drawn | None:
            found = self._plan(base, draw)
            if isinstance(found, KernloomError):
                return None
            trials.built(building([found.plan]))
            return found

        failure, limits = failures[0], base.experiment.workload.fuzz.sizes
        reduced = Reduction(failure, limits, verifier, built, self._progress).reduced()
        self._progress.clear()
        draws, error = reduced.draws, reduced.error
        saved = tuple(SavedDraw(one.plan.point.words, dict(one.draw.offsets)) for one in draws)
        case = FuzzCase(saved, f"{failure.status}: {error}")
        brief = base.brief
        path = save_case(case, brief.workload, brief.target, self._assembly.places)
        more = "" if len(failures) < MAX_FAILURES else " or more"
        report = DeviceError(
            f"{error}\n  smallest: {draws[-1].draw}.{reduced.condition}\n"
            f"  {len(failures)}{more} of {count(verified, 'draw')} fail, the first is number "
            f"{failure.number} with --seed {self._seed}\n  run it again: {command_of(path)}",
            status=failure.status,
            stderr=getattr(error, "stderr", ""),
        )
        report.stage = error.stage or "fuzz"
        return report


def planned_draw(
    assembly: Assembly, overrides: Overrides, draw: Draw, data: FuzzData
) -> Drawn | KernloomError:
    """A planned draw, or the reason why it is impossible."""
    try:
        (plan,) = plan_points(assembly, overrides, without=MEASURING, refresh=False)
    except KernloomError as error:
        return error
    if plan.refusal:
        return plan.refusal.error
    plan.data = data
    return Drawn(draw, plan)


def run_case(assembly: Assembly, progress: Progress, case: FuzzCase) -> FuzzResults:
    """The draws of a saved case, one after the other; the trial is that of the last."""
    data = FuzzData(assembly.places.roots)
    results, items = FuzzResults(), list[Drawn]()
    created, start = datetime.now(UTC), time.monotonic()
    assembly.refresh()
    for saved in case.draws:
        overrides = assembly.composer.parse(list(saved.overrides), multirun=False)
        draw = Draw(0, offsets=saved.offsets)
        overrides = replace(overrides, multirun=True)
        found = planned_draw(assembly, overrides, draw, data)
        if isinstance(found, KernloomError):
            raise found
        _check_offsets(found, saved)
        items.append(found)
    plan = items[-1].plan
    with scratch_folder(assembly.places.build) as scratch:
        building = Building(lambda plan: assembly.builder(plan.experiment), progress)
        outcomes = building([item.plan for item in items])
        results.build = building.summary
        with closing(DrawVerifier(Trials(assembly, outcomes, scratch), data)) as verifier:
            error = verifier.verify_alone(*items)
    status = status_of(error) if error else "ok"
    results.trials.append(_trial(plan, created, start, error, {"draws": 1}, status=status))
    return results


def _check_offsets(drawn: Drawn, saved: SavedDraw) -> None:
    """Refuse offsets that the draw's tensors cannot have, on its target."""
    experiment = drawn.plan.experiment
    tensors = experiment.workload.tensors
    for name, offset in saved.offsets.items():
        if name not in tensors:
            hint = nearest(name, tensors)
            raise ConfigError(f"'{name}' is no tensor of the workload", key="offsets", hint=hint)
        element = ELEMENT[tensors[name].dtype or experiment.workload.dtype]
        if offset % element:
            raise ConfigError(
                f"{offset} is no multiple of the {element} bytes of an element",
                key=f"offsets.{name}",
            )
        if offset and not _unaligned(drawn.plan):
            target = experiment.target.name
            raise ConfigError(f"{target} cannot place a tensor there", key=f"offsets.{name}")


def _unaligned(plan: Planned) -> bool:
    device = DEVICES.get(plan.experiment.target.device, key="target.device")
    return UNALIGNED in device.capabilities


def _warnings(drawing: Drawing, verified: int, refused: Refused) -> tuple[str, ...]:
    warnings = []
    if not drawing.varies:
        warnings.append("its sizes cannot vary: only seeds, contents and alignments were drawn")
    if refused.first and refused.count > verified:
        warnings.append(
            f"{count(refused.count, 'draw')} were impossible, {verified} were verified: "
            f"{refused.first.message}"
        )
    return tuple(warnings)


def _trial(
    plan: Planned,
    created: datetime,
    start: float,
    error: KernloomError | None,
    metrics: dict[str, int],
    *,
    status: str = "ok",
) -> Trial:
    return trial_of(
        plan,
        {},
        created,
        status=status,
        verified=error is None,
        metrics=metrics,
        stage=(error.stage or "fuzz") if error else "",
        message=str(error) if error else "",
        stderr=getattr(error, "stderr", ""),
        seconds=round(time.monotonic() - start, 6),
    )
