"""Samples drawn in a few characters, in the order they were taken."""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.measure.statistics import RankingClock, median, process_medians, times_of
from kernloom.measure.trial import Samples, Trial

# Seven heights have a middle one, so values close to the median do not flicker between two. The
# full block is left out: it would touch the line above.
BLOCKS = "▁▂▃▄▅▆▇"
WIDTH = 16
FLAT = 0.01
"""Values that differ by less than this share of their median are drawn as equal."""
REACH = 0.05
"""Minimal range of the scale around the median, so that little noise is drawn as little."""


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """The values as blocks of increasing height; empty for a single value, which has no scale."""
    if len(values) < 2:
        return ""
    points = _buckets(values, width)
    middle = median(points)
    if max(points) - min(points) <= FLAT * abs(middle):
        return BLOCKS[len(BLOCKS) // 2] * len(points)
    reach = REACH * abs(middle)
    low, high = min(*points, middle - reach), max(*points, middle + reach)
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((point - low) / (high - low) * top)] for point in points)


def samples_line(trial: Trial, processes: Sequence[Samples]) -> str:
    """Samples of the ranking clock: the process medians of the rounds, or one process's samples."""
    measured = [process for process in processes if process.wall_ns]
    ranked_by_cpu = trial.conditions.get("clock") == "cpu" and all(p.cpu_ns for p in measured)
    clock: RankingClock = "cpu" if ranked_by_cpu else "wall"
    if len(measured) == 1:
        return sparkline(times_of(measured[0], clock))
    return sparkline(process_medians(measured, clock))


def _buckets(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values, each the median of its neighbours."""
    count = min(width, len(values))
    bounds = [number * len(values) // count for number in range(count + 1)]
    return [median(values[bounds[n] : bounds[n + 1]]) for n in range(count)]
