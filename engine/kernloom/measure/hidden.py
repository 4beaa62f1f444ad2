"""Work that the times of samples do not show: done by other threads and processes, while the kernel
sleeps, behind a clock that is wrong, or once for many runs.

Each check compares two things that agree for every honest kernel, also on a busy machine: waiting
for a core is known from the system, and is never held against a kernel. What checking itself costs
is below an absolute floor. At least half of the processes have to agree, and a suspicion is
confirmed by further processes before anybody is accused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernloom.base.units import time_text
from kernloom.measure.sampler import CALIBRATIONS, Sampler
from kernloom.measure.statistics import median
from kernloom.measure.trial import Samples, Watch

OTHERS = 0.05
"""Share of all CPU time that other threads may have, for what the runner itself does."""
OTHERS_NS, OTHERS_SAMPLE_NS = 50_000, 5_000
"""The same for each process and for each of its samples, in nanoseconds: clocks of a process and of
its threads are not read at once."""
WAITING = 0.2
"""Share of time that one thread may wait by itself."""
WAITING_NS = 20_000
"""The same for each sample, in nanoseconds."""
REUSE, REUSE_ONCE = 1.25, 1.5
"""How many times longer runs with changed inputs may take: in one of several processes, and in one
process alone."""
REUSE_THREADS_ONCE = 4.0
"""The same for one process with several threads, which spin while they wait for each other."""
REUSE_WALL = 2.0
"""The same for several processes, by wall time of a device that has no other clock."""
REUSE_NS = 1000
"""CPU time that a change itself may cost: it writes a few cache lines, which have to be fetched,
and which the kernel and other cores then miss. Less work than this is not looked for."""
REUSE_WALL_NS = 10_000
"""The same for wall time, in which work-items may start late."""
FEWEST = 2
"""Fewest samples of either kind to compare."""
SLOW_CLOCK, SLOW_CLOCK_ONCE = 2.0, 3.0
"""How many times longer a launch may take by the engine's clock than its runs by the runner's:
one of several processes, and one alone."""
START_NS = 20e6
"""Time of a launch beside its runs."""
CONFIRMING = 3
"""Further processes that confirm a suspicion."""


def confirmed(
    found: Mapping[str, str], sampler: Sampler, sample: Callable[[], Samples]
) -> list[str]:
    """Those of the suspicions that further processes raise again: noise does not."""
    if not found:
        return []
    again = hidden_work([sample() for _ in range(CONFIRMING)], sampler)
    return [text for check, text in found.items() if check in again]


def hidden_work(processes: Sequence[Samples], sampler: Sampler) -> dict[str, str]:
    """Name of a check -> reason not to believe the times of these processes."""
    watched = [process for process in processes if process.watch and process.wall_ns]
    if not watched:
        return {}
    own = not sampler.bench.libraries
    # By CPU time several threads hide nothing: only that of the first counts.
    alone = own and sampler.clock == "cpu" and sampler.threads == 1
    checks = {
        "others": _others(watched) if alone else "",
        "left": _left(watched) if own else "",
        "sleep": _sleep(watched) if alone else "",
        "reuse": _reuse(watched, sampler),
        "clock": _slow_clock(watched, sampler),
    }
    return {name: text for name, text in checks.items() if text}


def _watch(process: Samples) -> Watch:
    assert process.watch
    return process.watch


def _total(process: Samples, times: Sequence[float]) -> float:
    return sum(times) * process.inner


def _others(processes: Sequence[Samples]) -> str:
    found = []
    for process in processes:
        others, own = sum(_watch(process).others_ns), _total(process, process.cpu_ns)
        floor = OTHERS_NS + OTHERS_SAMPLE_NS * len(process.wall_ns)
        if others > OTHERS * (own + others) + floor:
            found.append((others, own))
    if 2 * len(found) < len(processes):
        return ""
    others, own = max(found)
    return (
        f"other threads or processes of the kernel used {time_text(others)} of CPU time during "
        f"samples that took its own thread {time_text(own)}: they are not in its time. Use "
        "kl_parallel, or measure.clock=wall"
    )


def _left(processes: Sequence[Samples]) -> str:
    for process in processes:
        if left := _watch(process).left:
            return f"the kernel left {left} running after its call, which may work between samples"
    return ""


def _sleep(processes: Sequence[Samples]) -> str:
    """The thread waited by itself, and not for a core."""
    found = []
    for process in processes:
        watch = _watch(process)
        ready = _total(process, process.wall_ns) - watch.queued_ns
        waited = ready - _total(process, process.cpu_ns)
        count = len(process.wall_ns)
        switched = sum(number > 0 for number in watch.voluntary)
        if waited > WAITING * ready + WAITING_NS * count and 2 * switched >= count:
            found.append((waited / ready, ready))
    if 2 * len(found) < len(processes):
        return ""
    share, ready = max(found)
    return (
        f"the kernel slept or waited for {share:.0%} of {time_text(ready)}, which its CPU "
        "time does not show: use measure.clock=wall if it has to wait"
    )


def _reuse(processes: Sequence[Samples], sampler: Sampler) -> str:
    """Runs whose inputs changed against runs with the inputs of the run before, by CPU time, if the
    device has such a clock: on a busy machine several threads wait for each other for any time. Of
    several, one may have to do the work of all."""
    wall = not any(process.cpu_ns for process in processes)
    together = sampler.threads > 1 or wall
    once = REUSE_THREADS_ONCE if together else REUSE_ONCE
    several = REUSE_WALL if wall else REUSE
    factor = (several if len(processes) > 1 else once) * sampler.threads
    floor = REUSE_WALL_NS if wall else REUSE_NS * sampler.threads
    compared, found = 0, []
    for process in processes:
        watch = _watch(process)
        times = process.wall_ns if wall else process.cpu_ns
        pairs = list(zip(times, watch.varied, strict=False))
        changed = sorted(time for time, varied in pairs if varied)
        same = sorted(time for time, varied in pairs if varied is False)
        if min(len(changed), len(same)) < FEWEST:
            continue
        compared += 1
        longer, usual = median(changed), median(same)
        # Apart from each other, and not by one sample alone.
        apart = changed[len(changed) // 4] > same[-1 - len(same) // 4]
        if apart and (longer - usual) * watch.stride > floor and longer > factor * usual:
            found.append((longer, usual))
    if not found or 2 * len(found) <= compared:
        return ""
    longer, usual = max(found, key=lambda pair: pair[0] / max(pair[1], 1e-3))
    kind = "" if wall else " of CPU time"
    return (
        f"a run takes {time_text(longer)}{kind} after its inputs changed, "
        f"and {time_text(usual)} with the same inputs again: results are kept between calls. A "
        "workload whose kernels keep state has to declare it (stateful: true)"
    )


def _slow_clock(processes: Sequence[Samples], sampler: Sampler) -> str:
    """The engine's own clock against the sum of all runs."""
    policy, found = sampler.policy, []
    factor = SLOW_CLOCK if len(processes) > 1 else SLOW_CLOCK_ONCE
    for process in processes:
        watch = _watch(process)
        samples = _total(process, process.wall_ns)
        longest = max(max(process.wall_ns), policy.min_sample_us * 1000)
        known = samples + (policy.warmup + CALIBRATIONS) * longest
        if watch.elapsed_ns and watch.elapsed_ns - watch.delays_ns > factor * known + START_NS:
            found.append((watch.elapsed_ns, known))
    if 2 * len(found) < len(processes):
        return ""
    elapsed, known = max(found, key=lambda pair: pair[0] / pair[1])
    return (
        f"a launch took {time_text(elapsed)} by the engine's clock, and its runs at most "
        f"{time_text(known)} by the clock in the kernel's process: that clock is wrong, or work "
        "is done outside of the samples"
    )
