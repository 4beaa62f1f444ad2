"""Disturbances of a measurement: their signs in the samples, reported with a remedy."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import lru_cache

from kernloom.measure.statistics import (
    RankingClock,
    median,
    outlier_share,
    process_medians,
    times_of,
)
from kernloom.measure.trial import Samples

SHARED_CORE = 0.10
"""Share of a sample in which others may use the core before it is reported."""
INTERRUPTED = 0.25
"""Share of samples with an involuntary switch before it is reported."""
DRIFT = 0.03
DRIFT_ROUNDS = 6
"""Fewer rounds than this can rise by chance."""
CERTAIN = 0.6
"""Kendall's tau that counts as a rise: with six rounds chance gives it in 7 of 100 runs."""
OUTLIERS = 0.2
GROUPS_ROUNDS = 8
GROUPS_APART = 0.1
"""Least gap between the times of two groups of processes."""
SHORTEST_NS = 2000
"""A hundred times the clock's resolution: a shorter sample has an error of a percent."""


def warnings_of(
    processes: Sequence[Samples], clock: RankingClock, threads: int, load: float
) -> list[str]:
    """Reasons not to trust a result, each with a remedy; empty if there are none."""
    if not all(process.wall_ns for process in processes):
        return []  # Nothing was timed.
    checks = [
        _short(processes),
        _core_shared(processes, clock, threads, load),
        _waits(processes, clock, threads),
        _drift(processes, clock),
        _outliers(processes, clock),
        _two_groups(processes, clock),
    ]
    return [text for text in checks if text]


def load() -> float:
    """The recent number of processes that wanted a core, ours included."""
    return _load_at(int(time.monotonic()))


@lru_cache(maxsize=1)
def _load_at(second: int) -> float:
    """Cached per second; the system updates it every five seconds."""
    return os.getloadavg()[0]


def _short(processes: Sequence[Samples]) -> str:
    shortest = min(min(process.wall_ns) * process.inner for process in processes)
    if shortest >= SHORTEST_NS:
        return ""
    return (
        f"samples as short as {shortest:.0f} ns are within a percent of what the clock can tell "
        "apart: raise measure.min_sample_us"
    )


def _core_shared(
    processes: Sequence[Samples], clock: RankingClock, threads: int, load: float
) -> str:
    """Others used the core during samples; CPU time excludes that, but caches are affected."""
    total = sum(len(process.involuntary) for process in processes)
    hit = sum(1 for process in processes for count in process.involuntary if count)
    if not hit:
        return ""
    stolen = _stolen(processes) if threads == 1 else 0.0
    if hit / total <= INTERRUPTED and stolen <= SHARED_CORE:
        return ""
    cores = len(os.sched_getaffinity(0))
    seen = (
        f"others took the core during {hit / total:.0%} of the samples (load {load:.1f} on "
        f"{cores} {'core' if cores == 1 else 'cores'})"
    )
    if clock == "wall":
        return f"{seen}, and wall time counts it: end them, or use measure.scheduling=fifo" + (
            " or measure.clock=cpu" if threads == 1 else ""
        )
    return f"{seen}; CPU time leaves that out, but not what it does to the caches"


def _stolen(processes: Sequence[Samples]) -> float:
    """The share of wall time in which the measuring thread did not run."""
    if not all(process.cpu_ns for process in processes):
        return 0.0
    wall = sum(sum(process.wall_ns) * process.inner for process in processes)
    cpu = sum(sum(process.cpu_ns) * process.inner for process in processes)
    return max(0.0, 1 - cpu / wall) if wall else 0.0


def _waits(processes: Sequence[Samples], clock: RankingClock, threads: int) -> str:
    """The kernel waits by itself: it leaves the core idle and nobody else took it."""
    switched = any(any(process.involuntary) for process in processes)
    if clock != "cpu" or threads > 1 or switched:
        return ""
    stolen = _stolen(processes)
    if stolen <= SHARED_CORE:
        return ""
    return (
        f"the kernel waited for {stolen:.0%} of the time, which CPU time does not count: if that "
        "is its own doing (threads, input), use measure.clock=wall"
    )


def _drift(processes: Sequence[Samples], clock: RankingClock) -> str:
    if len(processes) < DRIFT_ROUNDS:
        return ""
    times = process_medians(processes, clock)
    third = len(times) // 3
    before, after = median(times[:third]), median(times[-third:])
    change = after / before - 1 if before else 0.0
    if abs(change) < DRIFT or abs(kendall(times)) < CERTAIN:
        return ""
    way = "slower" if change > 0 else "faster"
    return (
        f"the machine became {abs(change):.0%} {way} from the first rounds to the last (heat, "
        "clock frequency, another program): compare only with what was measured in the same rounds"
    )


def kendall(values: Sequence[float]) -> float:
    """Kendall's tau of values against their order: 1 if they only rise, -1 if they only fall."""
    signs = [
        (later > earlier) - (later < earlier)
        for index, earlier in enumerate(values)
        for later in values[index + 1 :]
    ]
    return sum(signs) / len(signs) if signs else 0.0


def _two_groups(processes: Sequence[Samples], clock: RankingClock) -> str:
    """Processes whose times fall into two groups."""
    if len(processes) < GROUPS_ROUNDS:
        return ""
    times = sorted(process_medians(processes, clock))
    if times[0] <= 0:
        return ""
    least = max(2, len(times) // 5)
    gap, at = max((times[i] / times[i - 1], i) for i in range(least, len(times) - least + 1))
    low, high = times[:at], times[at:]
    spread = max(low[-1] / low[0], high[-1] / high[0])
    if gap < 1 + GROUPS_APART or spread > gap:
        return ""
    return (
        f"the processes fall into two groups, around {median(low):.4g} and {median(high):.4g} ns: "
        "where their memory and code happen to lie decides, so neither is the time of the kernel"
    )


def _outliers(processes: Sequence[Samples], clock: RankingClock) -> str:
    share = outlier_share(times_of(process, clock) for process in processes)
    if share <= OUTLIERS:
        return ""
    return f"{share:.0%} of the samples lie far from the others: take more, with measure=rigorous"
