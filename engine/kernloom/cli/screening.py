"""A quick look at every point of a sweep, to measure only the most promising ones in full.

Kernels are compiled many at a time, verified, and measured in one process each. Nothing of that is
kept as a result: what is stored, shown as a trial or written to a recipe is built alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TextIO

from kernloom.build.artifact import Artifact
from kernloom.build.batch import Batch, batches
from kernloom.build.builder import Builder, Outcome
from kernloom.cli.assembly import Assembly
from kernloom.cli.planning import Planned
from kernloom.cli.progress import Progress
from kernloom.cli.trials import Trials
from kernloom.config.schema import Measure
from kernloom.errors import ConfigError
from kernloom.measure.statistics import median
from kernloom.measure.trial import Trial
from kernloom.measure.turns import blocks
from kernloom.report.best import ranked

SAMPLES, WARMUP, MIN_SAMPLE_US = 7, 2, 200.0


@dataclass(frozen=True)
class Screening:
    """Every point after a quick look, and which of them are worth more."""

    trials: tuple[Trial, ...] = ()
    """In the order of the points; never stored."""
    kept: frozenset[str] = frozenset()
    """Ids of those to measure in full."""
    batches: int = 0
    """How many libraries of several kernels were compiled."""
    split: int = 0
    """How many kernels were built alone after all, for their batch did not compile."""
    seconds: float = 0.0
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Of those that did not verify, how many of each status."""

    @property
    def text(self) -> str:
        """`screened 197 points in 8 batches, 4.1 s: best 0.82 ms, median 1.2 ms; 59 refused`."""
        from kernloom.report.units import count, time_text

        times = [t.metrics["median_ns"] for t in self.trials if t.good and "median_ns" in t.metrics]
        words = [f"screened {count(len(self.trials), 'point')} in {time_text(self.seconds * 1e9)}"]
        if times:
            words[0] += f": best {time_text(min(times))}, median {time_text(median(times))}"
        words += [f"{number} {status}" for status, number in self.statuses.items()]
        words.append(f"measured in full: {len(self.kept)}")
        return "; ".join(words)


def print_screening(screening: Screening, file: TextIO) -> None:
    """What failed under the quick look, and one line about all of it."""
    from kernloom.report.tables import print_failures

    print_failures([trial for trial in screening.trials if not trial.good], file)
    print(screening.text, file=file)


def screen(assembly: Assembly, plans: Sequence[Planned], progress: Progress) -> Screening:
    """Look at all points of a sweep, which says how many to keep."""
    start = time.monotonic()
    how, fleet = plans[0].experiment.screen, plans[0].experiment.fleet.name
    if fleet != "local":
        raise ConfigError(
            f"screening is done on this machine, but the fleet is '{fleet}'",
            key="screen.keep",
            hint="Screen with fleet=local, or leave screen.keep at 0.",
        )
    looked_at = list({plan.id: _quick(plan) for plan in plans}.values())
    shop = _Shop(assembly.builder(plans[0].experiment), how.batch, progress)
    outcomes = shop.build(looked_at)
    found: dict[str, Trial] = {}
    trials = Trials(assembly, outcomes)
    for block in blocks(looked_at, plans[0].experiment.measure.together):
        for plan, trial in trials.in_turns(block):
            found[plan.id] = trial
            progress.update("screening", len(found), len(looked_at))
    progress.clear()
    ordered = tuple(found[plan.id] for plan in looked_at)
    return Screening(
        trials=ordered,
        kept=frozenset(t.id for group in ranked(ordered) for t in group[: how.keep]),
        batches=shop.batches,
        split=shop.split,
        seconds=round(time.monotonic() - start, 3),
        statuses=Counter(trial.status for trial in ordered if not trial.good),
    )


def _quick(plan: Planned) -> Planned:
    """The plan with the quick policy in place of its own, and nothing to compare with."""
    experiment = plan.experiment
    return replace(
        plan, experiment=replace(experiment, measure=_policy(experiment.measure)), baselines={}
    )


def _policy(policy: Measure) -> Measure:
    """One process and a few samples, under the conditions of the policy that follows."""
    return replace(
        policy,
        samples=min(policy.samples, SAMPLES),
        warmup=min(policy.warmup, WARMUP),
        min_sample_us=min(policy.min_sample_us, MIN_SAMPLE_US),
        min_rounds=1,
        max_rounds=1,
        bound=0.0,
        baselines=(),
    )


class _Shop:
    """Builds what a screening needs, many kernels at a time."""

    def __init__(self, builder: Builder, size: int, progress: Progress) -> None:
        self._builder = builder
        self._size = size
        self._progress = progress
        self.batches = 0
        self.split = 0

    def build(self, plans: Sequence[Planned]) -> dict[str, Outcome]:
        """By key, how each artifact fared; those of a batch that failed are built alone."""
        wanted = {item.key: item for plan in plans for item in plan.artifacts}
        missing = [item for item in wanted.values() if not self._builder.state(item).cached]
        size = min(self._size, ceil(len(missing) / self._builder.jobs))
        joined = batches(missing, size) if size > 1 else []
        self.batches = len(joined)
        held = {key for batch in joined for key in batch.entries}
        rest = [item for item in wanted.values() if item.key not in held]
        outcomes = self._made([*(batch.artifact for batch in joined), *rest])
        failed = [batch for batch in joined if not outcomes[batch.artifact.key].ok]
        split = [wanted[key] for batch in failed for key in batch.entries]
        self.split = len(split)
        if split:
            # One that does not compile must not cost the others their turn.
            outcomes |= self._made(split)
        for batch in joined:
            outcomes |= _members(batch, outcomes.pop(batch.artifact.key), wanted)
        return outcomes

    def _made(self, artifacts: Sequence[Artifact]) -> dict[str, Outcome]:
        made = self._builder.build(
            artifacts, lambda done, total: self._progress.update("building", done, total)
        )
        self._progress.clear()
        return made


def _members(
    batch: Batch, outcome: Outcome, artifacts: Mapping[str, Artifact]
) -> dict[str, Outcome]:
    """The outcome of a batch as those of the kernels in it."""
    if not outcome.ok:
        return {}
    return {
        key: replace(outcome, artifact=artifacts[key], entry=entry)
        for key, entry in batch.entries.items()
    }
