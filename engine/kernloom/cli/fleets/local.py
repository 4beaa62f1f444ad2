"""Trials on this machine: everything is built, then measured in turns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from kernloom.build.builder import Outcome
from kernloom.cli.assembly import Assembly
from kernloom.cli.fleets import Build, Keep
from kernloom.cli.planning import Planned
from kernloom.cli.progress import Progress
from kernloom.cli.trials import Trials
from kernloom.config.schema import Fleet as Settings
from kernloom.config.schema import Measure
from kernloom.measure.turns import blocks


class Local:
    """This machine."""

    def __init__(self, assembly: Assembly, progress: Progress, settings: Settings) -> None:
        self._assembly = assembly
        self._progress = progress
        self._settings = settings
        self.notes: list[str] = []

    @contextmanager
    def at_work(self, plans: Sequence[Planned]) -> Iterator[None]:
        yield

    def trial_ids(self, plans: Sequence[Planned]) -> Mapping[str, str]:
        return {plan.id: plan.id for plan in plans}

    def carry_out(self, plans: Sequence[Planned], build: Build, keep: Keep) -> None:
        groups = list(_blocks(plans))
        others = other_cores()
        if self._settings.overlap and len(groups) > 1 and others:
            self._overlapping(groups, others, build, keep)
        else:
            self.measure(plans, build(plans), keep)

    def _overlapping(
        self, groups: Sequence[Sequence[Planned]], cores: set[int], build: Build, keep: Keep
    ) -> None:
        """Measure those that share their rounds while the next ones are built on other cores.

        A build that is under way when this is interrupted is waited for.
        """
        from concurrent.futures import ThreadPoolExecutor

        # What a thread starts inherits its cores.
        with ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, cores)) as pool:
            building = pool.submit(build, groups[0])
            for number, group in enumerate(groups):
                outcomes = building.result()
                if number + 1 < len(groups):
                    building = pool.submit(build, groups[number + 1])
                self.measure(group, outcomes, keep)

    def measure(
        self, plans: Sequence[Planned], outcomes: Mapping[str, Outcome], keep: Keep
    ) -> None:
        """Carry trials out in turns, as many together as the policy says."""
        if not plans:
            return
        trials = Trials(self._assembly, outcomes)
        policy = plans[0].experiment.measure
        done = turns = left = 0

        def turn(round: int) -> None:
            nonlocal turns
            in_rounds = policy.max_rounds > 1
            # Of the rounds that a trial takes at least; nobody knows how many more there will be.
            part = left * min(1.0, turns / (left * policy.min_rounds)) if in_rounds and left else 0
            turns += 1
            phase = "verifying" if in_rounds and round == 1 else "measuring"
            note = f"round {round}" if in_rounds else ""
            self._progress.update(phase, done, len(plans), note, part=part)

        with self._exclusively():
            for block in _blocks(plans):
                policy, turns, left = block[0].experiment.measure, 0, len(block)
                for plan, trial in trials.in_turns(block, turn):
                    keep(plan, trial)
                    done, left = done + 1, left - 1

    def _exclusively(self) -> AbstractContextManager[None]:
        if self._settings.exclusive == "none":
            return nullcontext()
        from kernloom.cli.fleets.alone import alone

        return alone()


def _blocks(plans: Sequence[Planned]) -> Iterator[Sequence[Planned]]:
    """Trials that share their rounds: of one policy, and no more than it says."""
    by_policy: dict[Measure, list[Planned]] = {}
    for plan in plans:
        by_policy.setdefault(plan.experiment.measure, []).append(plan)
    for policy, same in by_policy.items():
        yield from blocks(same, policy.together)


def other_cores() -> set[int]:
    """Those on which nothing is measured: a pinned runner has the last one."""
    usable = os.sched_getaffinity(0)
    return usable - {max(usable)}
