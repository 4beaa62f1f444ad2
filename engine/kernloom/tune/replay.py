"""Replays: a strategy searches a recorded space, without a device."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernloom.tune.guarded import GuardedStrategy
from kernloom.tune.recorded import Recording
from kernloom.tune.score import best_so_far, random_curve, score
from kernloom.tune.strategy import Point, Search

if TYPE_CHECKING:
    from kernloom.space.axes import Array


@dataclass(frozen=True)
class Repeat:
    """One search of a recorded space."""

    seed: int
    points: tuple[Point, ...]
    values: tuple[float | None, ...]
    """Lower is better; None: the point failed."""
    score: float

    @property
    def best(self) -> int | None:
        """The position of the best point."""
        good = [n for n, value in enumerate(self.values) if value is not None]
        return min(good, key=lambda n: self.values[n] or 0.0, default=None)


@dataclass(frozen=True)
class Replay:
    """The searches of a recorded space by one strategy."""

    recording: Recording
    strategy: str
    budget: int
    repeats: tuple[Repeat, ...]
    score: float
    error: float
    """Standard error of the score."""
    ms_per_point: float
    """CPU time of the strategy per suggestion."""


def replay(
    recording: Recording,
    strategy: str,
    budget: int,
    repeats: int,
    seed: int = 0,
    *,
    first: tuple[Point, ...] = (),
    on_repeat: Callable[[Repeat], None] = lambda repeat: None,
) -> Replay:
    """Let a strategy search a recorded space several times, with consecutive seeds."""
    random = random_curve(recording, budget)
    done: list[Repeat] = []
    curves: list[Array] = []
    seconds = 0.0
    for number in range(seed, seed + repeats):
        started = time.process_time()
        points, values = _search(recording, strategy, budget, number, first)
        seconds += time.process_time() - started
        curve = best_so_far(recording, values, budget)
        curves.append(curve)
        mine = score(recording, [curve], random)
        done.append(Repeat(number, tuple(points), tuple(values), mine))
        on_repeat(done[-1])
    evaluations = sum(len(repeat.points) for repeat in done)
    spread = statistics.pstdev([repeat.score for repeat in done])
    return Replay(
        recording,
        strategy,
        budget,
        tuple(done),
        score(recording, curves, random),
        spread / math.sqrt(len(done)),
        1e3 * seconds / max(1, evaluations),
    )


def _search(
    recording: Recording, name: str, budget: int, seed: int, first: tuple[Point, ...]
) -> tuple[list[Point], list[float | None]]:
    space = recording.space
    strategy = GuardedStrategy(name, Search(space, seed, budget, first))
    points: list[Point] = []
    values: list[float | None] = []
    while len(points) < budget and (asked := strategy.ask(1)):
        for point in asked:
            value = recording.values.get(space.index(point))
            points.append(point)
            values.append(value)
            strategy.tell(point, value)
    return points, values
