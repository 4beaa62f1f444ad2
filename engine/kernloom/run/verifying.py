"""Verifies a recipe: the same config (L1), the same bytes (L2), the same results (L3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernloom.base.environment import same_class
from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.base.gauges import TIME
from kernloom.base.units import count
from kernloom.build.binary_difference import first_difference
from kernloom.build.builder import Builder
from kernloom.build.manifest import read_manifest
from kernloom.build.workspace import scratch_folder
from kernloom.config.compose import Point
from kernloom.measure.comparison import Comparison
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import Artifact, steps_of
from kernloom.plan.planned import Planned
from kernloom.recipe.claims import described
from kernloom.recipe.judging import Judgement, judge
from kernloom.recipe.levels import LEVELS, Level, changes_of, compared, name_of, other_count
from kernloom.recipe.lock import Lock, LockedPoint, short
from kernloom.recipe.recipe import Recipe
from kernloom.run.assembly import Assembly
from kernloom.run.comparing import Contender, compare
from kernloom.run.estimating import estimate
from kernloom.run.execution import Execution, Results
from kernloom.run.fleet import FleetSetup
from kernloom.run.fleets import create_fleet
from kernloom.run.locking import GOLDEN, Locking
from kernloom.run.planning import MEASURING, plan_each
from kernloom.run.progress import Progress
from kernloom.run.stores import store_of

RACE_ROUNDS = 10
"""A policy with fewer rounds cannot tell two times apart; `rigorous` is used instead."""
RACE_POLICY = "rigorous"
NOT_LOCKED = "not locked"
MIN_PROCESSES = 3
"""Fewer processes than this say nothing about how times vary from one to the next."""
GUESSED_BYTES = 25_000
"""Size of a built file, if nothing is known about it."""
CONFIRMATIONS = 2
"""How often a time is measured again before it counts as another one."""


@dataclass
class Verification:
    """What came of verifying a recipe."""

    levels: list[Level] = field(default_factory=list)
    claims: list[Judgement] = field(default_factory=list)
    results: Results = field(default_factory=Results)
    notes: list[str] = field(default_factory=list)

    @property
    def reached(self) -> str:
        """The highest level that is reached with all below it; '' if none is."""
        reached = ""
        for level in self.levels:
            if level.status != "reached":
                break
            reached = level.name
        return reached

    @property
    def failed(self) -> bool:
        lost = any(level.status == "failed" for level in self.levels)
        return lost or any(claim.verdict == "fails" for claim in self.claims)


class Verifying:
    """Verifies one recipe on this machine."""

    def __init__(
        self, assembly: Assembly, recipe: Recipe, local: Mapping[str, Any], progress: Progress
    ) -> None:
        self._assembly = assembly
        self._recipe = recipe
        self._local = local
        self._progress = progress
        self._plans: list[Planned] = []

    def verify(self, *, rounds: int = 1) -> Verification:
        """Check every level, and every claim."""
        found = Verification()
        entries = self._recipe.entries(self._assembly.composer, self._local)
        found.notes += dict.fromkeys(note for entry in entries for note in entry.notes)
        lock = self._recipe.lock
        if lock is None:
            found.levels = [Level(name, "not checked", NOT_LOCKED) for name in LEVELS[:2]]
        else:
            found.levels.append(self._same_config(lock))
        try:
            plans = plan_each(
                self._assembly, [entry.point for entry in entries], alone=len(entries) == 1
            )
        except UnavailableError as error:
            return self._unavailable(found, error)
        if lock:
            found.levels.append(self._same_bytes(lock, plans, rounds))
        self._run(found, plans)
        found.levels.append(self._same_results(found, lock))
        return found

    def cost(self) -> dict[str, float]:
        """Estimated seconds to build and to run everything, and bytes of what is built: those of
        the lock, or else from what similar trials took."""
        if self._recipe.lock:
            return dict(self._recipe.lock.cost)
        entries = self._recipe.entries(self._assembly.composer, self._local)
        points = [entry.point for entry in entries]
        plans = plan_each(self._assembly, points, alone=len(points) == 1)
        wanted = {a.key: a for plan in plans for _, a in plan.named_artifacts}
        builder = self._assembly.builder()
        missing = [artifact for artifact in wanted.values() if not builder.is_whole(artifact)]
        with store_of(self._assembly, plans[0].experiment) as store:
            found = estimate(missing, plans, builder, store)
        return {
            "build_s": found["build"]["seconds"],
            "run_s": found["run"]["seconds"],
            "bytes": GUESSED_BYTES * len(wanted),
        }

    def first_look(self) -> Verification:
        """Check the claims on the proxy of the request; no level is claimed."""
        found = Verification()
        entries = self._recipe.composed(self._assembly.composer, self._local, proxy=True)
        points = [entry.point for entry in entries]
        plans = plan_each(self._assembly, points, alone=len(points) == 1)
        self._run(found, plans, absent="the first look has no such trial")
        return found

    def _unavailable(self, found: Verification, error: UnavailableError) -> Verification:
        """No trial can run here: what that leaves undecided."""
        if len(found.levels) < 2:
            found.levels.append(Level("L2", "not claimable", error.message))
        found.levels.append(Level("L3", "not checked", error.message))
        found.claims = [
            Judgement(claim.text, "undecided", error.message)
            for claim in self._recipe.request.claims
        ]
        return found

    # L1

    def _same_config(self, lock: Lock) -> Level:
        if self._recipe.edited:
            parts = ", ".join(self._recipe.edited)
            return Level("L1", "failed", f"the request was changed since it was locked: {parts}")
        try:
            here = self._recipe.composed(self._assembly.composer, self._local)
        except KernloomError as error:
            return Level("L1", "failed", error.message)
        return compared(lock.points, here)

    # L2

    def _same_bytes(self, lock: Lock, plans: Sequence[Planned], rounds: int) -> Level:
        not_claimable = ""
        wanted: dict[str, Artifact] = {}
        for locked, plan in zip(lock.points, plans, strict=True):
            if plan.refusal and locked.artifacts:
                not_claimable = not_claimable or plan.refusal.error.message
                continue
            planned = dict(plan.named_artifacts)
            for name, key in locked.artifacts.items():
                if name not in planned:
                    return Level("L2", "failed", f"{name} is not built here")
                artifact = planned[name]
                changes = changes_of(lock, key, artifact)
                if changes.failed:
                    return Level("L2", "failed", changes.failed)
                not_claimable = not_claimable or changes.not_claimable
                wanted[artifact.key] = artifact
        if not_claimable:
            return Level("L2", "not claimable", not_claimable)
        return self._rebuilt(lock, list(wanted.values()), rounds)

    def _rebuilt(self, lock: Lock, artifacts: Sequence[Artifact], rounds: int) -> Level:
        """Build everything in new folders, and compare the bytes."""
        places = self._assembly.places
        with scratch_folder(places.build) as scratch:
            if scratch is None:
                return Level("L2", "not checked", f"no folder can be made below {places.build}")
            before: Path | None = None
            for number in range(1, rounds + 1):
                folder = scratch / f"round{number}" / "build"
                folder.mkdir(parents=True)
                builder = Builder(replace(places, build=folder))
                tell = lambda done, total: self._progress.update("rebuilding", done, total)  # noqa: E731
                with closing(self._assembly.ahead):
                    outcomes = builder.build(artifacts, tell)
                self._progress.clear()
                for key, outcome in outcomes.items():
                    if not outcome.ok:
                        reason = outcome.message.splitlines()[0] if outcome.message else ""
                        return Level("L2", "failed", f"{outcome.artifact.name}: {reason}")
                    if difference := self._different(lock, key, outcome.artifact, folder, before):
                        return Level("L2", "failed", difference)
                before = folder
        count = len(lock.artifacts)
        times = f"{rounds} times" if rounds > 1 else "once"
        return Level("L2", "reached", f"{count} files rebuilt {times} in another folder")

    def _different(
        self, lock: Lock, key: str, artifact: Artifact, folder: Path, before: Path | None
    ) -> str:
        """How a rebuilt artifact differs from the locked one; '' if it does not. The first of its
        build steps that differs is named."""
        for step in steps_of(artifact):
            locked = lock.artifacts.get(step.key)
            manifest = read_manifest(step.folder(folder)) or {}
            now = short(str(manifest.get("output_sha256", "")))
            if locked is None or not now or now == locked.output:
                continue
            for other in (before, self._assembly.places.build):
                path = step.path(other) if other else None
                if path and path.is_file():
                    where = first_difference(path, step.path(folder))
                    if where:
                        return f"{step.name}: {step.output} differs in {where}"
            return f"{step.name}: {step.output} has other bytes from the same inputs"
        return ""

    # L3

    def _run(self, found: Verification, plans: list[Planned], absent: str = "") -> None:
        """Run the trials, and judge the claims by them."""
        self._plans = plans
        found.results = self._execute(plans)
        trials = list(found.results.trials)
        by_id = {trial.id: plan for trial, plan in zip(trials, plans, strict=True)}
        known = [
            described(trial, _compiler(plan)) for trial, plan in zip(trials, plans, strict=True)
        ]
        found.claims = [
            judge(claim, known, lambda a, b: self._race(by_id[a.id], by_id[b.id]), absent=absent)
            for claim in self._recipe.request.claims
        ]

    def _execute(self, plans: list[Planned]) -> Results:
        experiment = plans[0].experiment
        setup = self._assembly
        with closing(setup.ahead), store_of(setup, experiment) as store:
            fleet = create_fleet(experiment.fleet, FleetSetup(setup, store, self._progress))
            execution = Execution(setup, store, self._progress, fleet, lambda trial: None)
            results = execution.execute(plans)
        self._progress.clear()
        if results.failure:
            raise results.failure
        if results.interrupted:
            raise KeyboardInterrupt
        return results

    def _race(self, first: Planned, second: Planned) -> Comparison | str:
        """Both measured in the same rounds, as `compare` does."""
        contenders = []
        for name, plan in (("left", first), ("right", second)):
            data = dict(plan.point.data)
            if plan.experiment.measure.max_rounds < RACE_ROUNDS:
                chosen = self._assembly.composer.choose({"measure": RACE_POLICY})
                data["measure"] = next(iter(self._assembly.composer.points(chosen))).data["measure"]
            [again] = plan_each(self._assembly, [Point({}, data)], alone=True, without=MEASURING)
            contenders.append(Contender(name, again))
        with closing(self._assembly.ahead):
            done = compare(self._assembly, contenders, [["left", "right"]], self._progress)
        for entry in done.entries:
            if entry.status != "ok":
                return entry.message
        return done.comparisons[0]

    def _same_results(self, found: Verification, lock: Lock | None) -> Level:
        trials = found.results.trials
        bad = [trial for trial in trials if not trial.good]
        expected = [point.status for point in lock.points] if lock else []
        for number, trial in enumerate(trials):
            if trial.good or (expected and expected[number] == trial.status):
                continue
            if trial.status == "unavailable":
                return Level("L3", "not checked", f"{trial.target}: {trial.message}")
            return Level("L3", "failed", f"{name_of(trial)} is {trial.status}: {trial.message}")
        if bad and len(bad) == len(trials):
            return Level("L3", "not checked", "no trial verified, as when it was locked")
        other = self._other_results(found, lock) if lock else ""
        if other:
            return Level("L3", "failed", other)
        self._excuse(found, lock)
        failing = [claim for claim in found.claims if claim.verdict == "fails"]
        if failing:
            return Level("L3", "failed", f"{failing[0].claim} ({failing[0].reason})")
        undecided = sum(claim.verdict == "undecided" for claim in found.claims)
        held = len(found.claims) - undecided
        said = f"{len(trials) - len(bad)} verified, {count(held, 'claim')} {_plural(held)}"
        if undecided:
            said += f", {undecided} cannot be decided here"
        return Level("L3", "not claimable" if undecided else "reached", said)

    def _excuse(self, found: Verification, lock: Lock | None) -> None:
        """A claim about times need not hold on another machine, nor one about counts with another
        compiler."""
        if lock is None:
            return
        elsewhere = not same_class(lock.host)
        other_tools = found.levels[-1].status == "not claimable"
        for number, claim in enumerate(found.claims):
            why = ""
            if claim.verdict == "fails" and claim.sampled and elsewhere:
                why = f"locked on another machine, {lock.host.get('cpu')}"
            elif claim.verdict == "fails" and not claim.sampled and other_tools:
                why = found.levels[-1].reason
            if why:
                reason = f"{claim.reason} here; {why}"
                found.claims[number] = replace(claim, verdict="undecided", reason=reason)

    def _other_results(self, found: Verification, lock: Lock) -> str:
        """The first result that is not that of the lock; '' if all are equivalent."""
        locking = Locking(self._assembly)
        built_alike = found.levels[-1].status == "reached"
        same_machine = same_class(lock.host)
        if not same_machine:
            found.notes.append(
                "times are not compared with those of the lock, which are of another machine: "
                f"{lock.host.get('cpu')}"
            )
        for number, (locked, plan) in enumerate(zip(lock.points, self._plans, strict=True)):
            trial = found.results.trials[number]
            if not trial.good or not locked.metrics:
                continue
            if locked.data.get(GOLDEN) and locked.data[GOLDEN] != locking.golden(plan):
                found.notes.append(f"{name_of(trial)}: the golden results differ from the lock's")
            if built_alike and (difference := other_count(locked, trial)):
                return difference
            if same_machine and (difference := self._other_times(found, locked, number)):
                return difference
        return ""

    def _other_times(self, found: Verification, locked: LockedPoint, number: int) -> str:
        """A time that is certainly further from the lock's than the request allows, also when it is
        measured again."""
        said = self._other_time(found, locked, found.results.trials[number])
        for _ in range(CONFIRMATIONS):
            if not said:
                break
            [again] = self._execute([self._plans[number]]).trials
            said = self._other_time(found, locked, again)
        return said

    def _other_time(self, found: Verification, locked: LockedPoint, trial: Trial) -> str:
        names = (TIME.name, TIME.low, TIME.high, "processes")
        *old, then = [float(locked.metrics.get(name) or 0) for name in names]
        *new, now = [float(trial.metrics.get(name) or 0) for name in names]
        if not all((*old, *new)):
            return ""
        if min(then, now) < MIN_PROCESSES:
            found.notes.append(
                "times are not compared with those of the lock: they are of too few processes; "
                "measure=standard has more"
            )
            return ""
        allowed = self._recipe.request.variation
        ratio, low, high = new[0] / old[0], new[1] / old[2], new[2] / old[1]
        if low <= 1 + allowed and high >= 1 / (1 + allowed):
            return ""
        return (
            f"{name_of(trial)} takes {ratio:.2f} of the time of the lock "
            f"(interval {low:.2f} to {high:.2f}, allowed ±{allowed:.0%})"
        )


def _plural(number: int) -> str:
    return "holds" if number == 1 else "hold"


def _compiler(plan: Planned) -> str:
    versions = [item.artifact.identity.version for item in plan.steps]
    return versions[0] if versions else ""
