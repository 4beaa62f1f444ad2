"""Runs of a launch, timed by the device's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernloom.device.messages import Changes, Moment, Sample
from kernloom.device.opencl.variation import Variation

MAX_INNER = 1 << 20
"""Limit of iterations: more would take longer to enqueue than any sample should last."""
MAX_ENQUEUED = 512
"""Commands enqueued before the worker waits for them."""
CHANGE_NS = 200_000
"""Time between two changes of the tensors, of which a change takes a few percent."""


@dataclass(frozen=True)
class Command:
    """One call of an iteration."""

    enqueue: Callable[[], Sequence[Any]]
    """Enqueues the call and returns its events."""
    transfer: bool


class Sampling:
    """Takes the samples of one launch."""

    def __init__(
        self, queue: Any, commands: Sequence[Command], variation: Variation | None = None
    ) -> None:
        self._queue = queue
        self._commands = commands
        self._variation = variation
        self._run_ns = float("inf")
        """Shortest time of a run, enqueueing included."""

    @property
    def stride(self) -> int:
        """Mean number of runs between two changes."""
        return max(1, round(CHANGE_NS / self._run_ns))

    def warm_up(self, runs: int) -> None:
        self.run(runs, Changes.ALL)

    def calibrated(self, warmup: int, least_ns: int) -> int:
        """Iterations for a sample to last `least_ns`. The shorter of two times is used, because an
        interruption only lengthens a time."""
        inner = 1
        times = [self.run(1, Changes.ALL).wall_ns for _ in range(warmup)]
        while True:
            while len(times) < 2 and min(times, default=least_ns) >= least_ns:
                times.append(self.run(inner, Changes.ALL).wall_ns)
            took = min(times)
            if took >= least_ns or inner >= MAX_INNER:
                return inner
            growth = max(1.2, 1.2 * least_ns / took) if took else 10.0
            inner, times = min(MAX_INNER, int(inner * growth) + 1), []

    def samples(self, inner: int, count: int) -> tuple[Sample, ...]:
        variation = self._variation
        if variation is None or not count:
            return tuple(self.run(inner) for _ in range(count))
        proven, last = variation.random.randrange(count), count - 1
        proofs = {proven, last}
        # Two kinds of samples in a random order: a kernel that reuses results takes longer in one.
        kinds = [Changes.ALL if i % 2 else Changes.NONE for i in range(count - len(proofs))]
        variation.random.shuffle(kinds)
        taken = []
        for i in range(count):
            if i in proofs:
                taken.append(self._proven(variation, inner, drawn=i == proven, last=i == last))
            else:
                kind = kinds.pop()
                taken.append(replace(self.run(inner, kind), changes=kind))
        return tuple(taken)

    def _proven(self, variation: Variation, inner: int, *, drawn: bool, last: bool) -> Sample:
        """A sample with runs on the unmixed data set: one that is drawn, and the last one."""
        parts = []
        before = variation.random.randrange(inner) if drawn else inner - 1
        if last:
            variation.poison()
        parts.append(self.run(before, Changes.ALL))
        parts.append(self._proof(variation, copied=drawn))
        rest = inner - before - 1
        if last and rest:
            parts.append(self.run(rest - 1, Changes.ALL))
            parts.append(self._proof(variation))
        else:
            parts.append(self.run(rest, Changes.ALL))
        wall, transfer = (sum(part.wall_ns for part in parts), sum(p.transfer_ns for p in parts))
        return replace(parts[0], wall_ns=wall, transfer_ns=transfer, changes=Changes.PROOF)

    def _proof(self, variation: Variation, *, copied: bool = False) -> Sample:
        variation.unmix()
        if copied:
            variation.copy(Moment.BEFORE)
        sample = self.run(1)
        if copied:
            variation.copy(Moment.AFTER)
        return sample

    def run(self, iterations: int, changes: Changes | None = None) -> Sample:
        """Run iterations; times come from the device's own clock, per command. With `changes`,
        something is written before some of them: changes, or with NONE what is there already."""
        kernels = transfers = 0
        waiting: list[tuple[Any, bool]] = []
        written: list[Any] = []
        start, changing = time.perf_counter_ns(), 0
        for iteration in range(iterations):
            if iteration >= changing and changes is not None and self._variation:
                write = (
                    self._variation.change if changes == Changes.ALL else self._variation.refresh
                )
                written += write()
                # At random, so that a kernel cannot count.
                changing += 1 + self._variation.random.randrange(2 * self.stride - 1)
            for command in self._commands:
                waiting += [(event, command.transfer) for event in command.enqueue()]
            if len(waiting) >= MAX_ENQUEUED or iteration + 1 == iterations:
                self._queue.finish()
                for event, transfer in waiting:
                    took = event.profile.end - event.profile.start
                    transfers += took * transfer
                    kernels += took * (not transfer)
                waiting.clear()
                written.clear()
        if iterations:
            self._run_ns = min(self._run_ns, (time.perf_counter_ns() - start) / iterations)
        return Sample(kernels + transfers, 0, 0, 0, 0, transfers)
