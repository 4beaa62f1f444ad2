"""Trials on this machine: built, then measured in turns; or measured while the rest is built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from kernloom.base.gauges import leading_gauge
from kernloom.build.builder import Outcome
from kernloom.build.cores import MeasuredCore, smt_siblings
from kernloom.build.workspace import scratch_folder
from kernloom.config.schema import Policy
from kernloom.config.settings import FleetSettings
from kernloom.device.devices import DEVICES
from kernloom.measure.sampler import threads_of
from kernloom.measure.statistics import chosen_clock
from kernloom.measure.turns import blocks
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.fleet import BESIDE_BUILDS, SCREENING, Fleet, FleetSetup, Keep, TrialBuild
from kernloom.run.planning import MAX_PLANS_IN_MEMORY
from kernloom.run.progress import Progress
from kernloom.run.sharing import Everything, Share
from kernloom.run.trials import Trials

MIN_TRIALS_BUILT = 8
"""Number of trials that must be built before measuring takes a core from the compilers."""
MAX_SHARE_BUILT = 0.25
"""The same as a share of all trials, where that is fewer."""


@dataclass(frozen=True)
class LocalSettings(FleetSettings):
    """Trials on this machine."""

    kind: str = "local"
    exclusive: Literal["node", "measuring", "none"] = "none"
    """`measuring`, or `node`, which includes it: never two measurements on this machine at once."""
    overlap: Literal[True, False, "auto"] = "auto"
    """Measure trials while others are being built, on other cores; `auto`: where that cannot change
    the results: exact gauges, and screenings and searches, whose best are measured again."""


class Local(Fleet):
    """This machine."""

    Settings: ClassVar[type[FleetSettings]] = LocalSettings
    on_this_machine: ClassVar[bool] = True

    def __init__(
        self,
        assembly: Assembly,
        progress: Progress,
        settings: LocalSettings,
        phase: str = "measuring",
        *,
        measured_again: bool = False,
    ) -> None:
        super().__init__()
        self._phase = phase
        self._measured_again = measured_again or phase == SCREENING
        self._assembly = assembly
        self._progress = progress
        self._settings = settings

    @classmethod
    def create(cls, settings: LocalSettings, setup: FleetSetup) -> Self:
        again = setup.measured_again
        return cls(setup.assembly, setup.progress, settings, setup.phase, measured_again=again)

    def execute(
        self, plans: Sequence[Planned], build: TrialBuild, keep: Keep, share: Share | None = None
    ) -> None:
        if self._overlaps(plans):
            self._overlapping(plans, build, keep, share or Everything())
        else:
            self.measure(plans, build(plans), keep, share)

    def _overlaps(self, plans: Sequence[Planned]) -> bool:
        """Whether to measure while others are built."""
        wanted = self._settings.overlap
        # The details of more plans than that are not in memory.
        if not wanted or not plans or (wanted == "auto" and len(plans) > MAX_PLANS_IN_MEMORY):
            return False
        if why := disturbed(plans):
            if wanted is True:
                self._progress.say(
                    f"fleet.overlap: everything is built before measuring, for {why}"
                )
            return False
        return wanted is True or self._measured_again or all(map(_exact, plans))

    def measure(
        self,
        plans: Sequence[Planned],
        outcomes: Mapping[str, Outcome],
        keep: Keep,
        share: Share | None = None,
    ) -> None:
        """Run trials in turns, as many together as the policy says."""
        if not plans:
            return
        with scratch_folder(self._assembly.places.build) as scratch:
            trials = Trials(self._assembly, outcomes, scratch)
            measuring = self._measuring(trials, len(plans), keep, share or Everything())
            with self._exclusively():
                left = measuring.execute(*_singly(plans))
            self._finish(left, measuring, share or Everything())

    def _measuring(self, trials: Trials, total: int, keep: Keep, share: Share) -> _Measuring:
        return _Measuring(trials, self._progress, self._phase, total, keep, share)

    def _finish(self, left: Sequence[Planned], measuring: _Measuring, share: Share) -> None:
        """Wait for trials that other engines have claimed; run those that they did not finish."""
        while left:
            # Never while holding the measuring lock: the other engine may be waiting for it.
            share.wait(left)
            with self._exclusively():
                left = measuring.execute(*_singly(left))

    def _overlapping(
        self, plans: Sequence[Planned], build: TrialBuild, keep: Keep, share: Share
    ) -> None:
        """Measure trials while others are being built on other cores."""
        with scratch_folder(self._assembly.places.build) as scratch:
            trials = Trials(self._assembly, {}, scratch)
            measuring = self._measuring(trials, len(plans), keep, share)
            left = self._measure_as_built(plans, build, trials, measuring)
            left += self._measure_rest(measuring)
            self._finish(left, measuring, share)

    def _measure_as_built(
        self,
        plans: Sequence[Planned],
        build: TrialBuild,
        trials: Trials,
        measuring: _Measuring,
    ) -> list[Planned]:
        """Measure trials as they are built, except for the last; returns those that other engines
        have claimed."""
        core = MeasuredCore(max(os.sched_getaffinity(0)), self._assembly.places.build)
        left: list[Planned] = []
        waiting = _Waiting(list(_singly(plans)))
        there: set[str] = set()
        least = min(MIN_TRIALS_BUILT, max(1, int(len(plans) * MAX_SHARE_BUILT)))
        building = build.as_built(plans, core)
        with closing(building):
            for outcomes in building:
                trials.built(outcomes)
                there |= outcomes.keys()
                measuring.ready += waiting.whole(outcomes)
                measuring.tell(f"{len(there)} built")
                if sum(map(len, measuring.ready)) >= least:
                    with core.taken(), self._exclusively():
                        left += measuring.execute_ready(beside_builds=self._measured_again)
        return left

    def _measure_rest(self, measuring: _Measuring) -> list[Planned]:
        with self._exclusively():
            return measuring.execute_ready()

    def _exclusively(self) -> AbstractContextManager[None]:
        if self._settings.exclusive == "none":
            return nullcontext()
        from kernloom.fleet.alone import alone

        return alone(lambda: self._progress.say("waiting: another Kernloom measures here"))


class _Waiting:
    """Blocks of trials that wait for their artifacts."""

    def __init__(self, blocks: Sequence[Sequence[Planned]]) -> None:
        self._blocks = blocks
        self._missing = [set(_needs(block)) for block in blocks]
        self._waiting: dict[str, list[int]] = {}
        """Key of an artifact -> numbers of the blocks that need it."""
        for number, keys in enumerate(self._missing):
            for key in keys:
                self._waiting.setdefault(key, []).append(number)
        self._free = [number for number, keys in enumerate(self._missing) if not keys]

    def whole(self, built: Iterable[str]) -> list[Sequence[Planned]]:
        """The blocks that these artifacts complete."""
        found, self._free = self._free, []
        for key in built:
            for number in self._waiting.pop(key, ()):
                self._missing[number].discard(key)
                if not self._missing[number]:
                    found.append(number)
        return [self._blocks[number] for number in sorted(found)]


class _Measuring:
    """Runs trials in turns and reports progress."""

    def __init__(
        self,
        trials: Trials,
        progress: Progress,
        phase: str,
        total: int,
        keep: Keep,
        share: Share,
    ) -> None:
        self._phase = phase
        self._share = share
        self._trials = trials
        self._progress = progress
        self._total = total
        self._keep = keep
        self._done = 0
        self._left = 0
        """Unfinished trials of the current block, which share their rounds."""
        self._rounds: list[int] = []
        """Number of rounds of each trial that has ended."""
        self._note = ""
        self.ready: list[Sequence[Planned]] = []
        """Blocks that are built."""

    def execute_ready(self, *, beside_builds: bool = False) -> list[Planned]:
        ready, self.ready = self.ready, []
        return self.execute(*ready, beside_builds=beside_builds)

    def tell(self, note: str) -> None:
        """Show what else is going on."""
        self._note = note
        self._progress.update(self._phase, self._done, self._total, note)

    def execute(self, *blocks: Sequence[Planned], beside_builds: bool = False) -> list[Planned]:
        """Run the trials of each block that this engine can claim; returns the others."""
        others: list[Planned] = []
        for wanted in blocks:
            block, busy = self._share.claim(wanted)
            others += busy
            self._done += len(wanted) - len(block) - len(busy)
            if not block:
                continue
            policy, self._left, round = block[0].experiment.measure, len(block), 0

            def turn(number: int, policy: Policy = policy) -> None:
                nonlocal round
                round = number
                self._say(policy, round)

            for plan, trial in self._trials.in_turns(block, turn):
                if beside_builds and not _exact(plan):
                    trial = replace(trial, conditions={**trial.conditions, BESIDE_BUILDS: True})
                self._keep(plan, trial)
                self._share.release(plan)
                self._rounds.append(round)
                self._done += 1
                self._left -= 1
        return others

    def _say(self, policy: Policy, round: int) -> None:
        if policy.max_rounds == 1:
            self._progress.update(self._phase, self._done, self._total, self._note)
            return
        phase = "verifying" if round == 1 else self._phase
        # Estimated from the trials that have ended, as the number of rounds is not known in
        # advance.
        ended = self._rounds
        wanted = max(sum(ended) / len(ended) if ended else policy.max_rounds, policy.min_rounds)
        if round >= wanted:
            wanted = (round + policy.max_rounds) / 2
        part = self._left * min(1.0, (round - 1) / wanted)
        notes = [f"round {round} of at most {policy.max_rounds}", self._note]
        note = ", ".join(filter(None, notes))
        self._progress.update(phase, self._done, self._total, note, part=part)


def _exact(plan: Planned) -> bool:
    """Whether a trial's result cannot be disturbed at all."""
    device = DEVICES.get(plan.experiment.target.device, key="target.device")
    return plan.refusal is not None or leading_gauge(device.gauges).exact


def disturbed(plans: Sequence[Planned]) -> str:
    """Why compilers on other cores would disturb the measurement, if they would."""
    usable = os.sched_getaffinity(0)
    if usable <= smt_siblings(max(usable)):
        return "there is no other core"
    for plan in plans:
        experiment, target = plan.experiment, plan.experiment.target
        if plan.refusal:
            continue
        device = DEVICES.get(target.device, key="target.device")
        if leading_gauge(device.gauges).exact:
            continue
        if threads_of(plan.steps) > 1:
            return "kernels of several threads are measured"
        if not experiment.measure.pin:
            return "kernels are not kept to one core (measure.pin)"
        clock = chosen_clock(experiment.measure.clock, 1)
        if clock != "cpu" or "cpu_clock" not in device.capabilities:
            return f"on {target.name} the wall clock counts"
    return ""


def _needs(block: Sequence[Planned]) -> frozenset[str]:
    return frozenset(item.key for plan in block for _, item in plan.named_artifacts)


def _blocks(plans: Sequence[Planned]) -> Iterator[Sequence[Planned]]:
    """Blocks of trials that share their rounds: one policy per block, and no more than it
    permits."""
    by_policy: dict[Policy, list[Planned]] = {}
    for plan in plans:
        by_policy.setdefault(plan.brief.measure, []).append(plan)
    for policy, same in by_policy.items():
        yield from blocks(same, policy.together)


def _singly(plans: Sequence[Planned]) -> Iterator[Sequence[Planned]]:
    """The same, but single trials where there are no rounds, and no peers, to share."""
    for block in _blocks(plans):
        shared = block[0].brief.measure.max_rounds > 1 or any(p.brief.has_peers for p in block)
        yield from [block] if shared else blocks(block, 1)
