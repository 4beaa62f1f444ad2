"""Work that the times of samples do not show: done by other threads and processes, while the kernel
sleeps, behind a clock that is wrong, or once for many runs.

Each check compares two things that agree for every honest kernel, also on a busy machine: waiting
for a core is known from the system, and is never held against a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.base.units import time_text
from kernloom.measure.sampler import CALIBRATIONS, Sampler
from kernloom.measure.statistics import median
from kernloom.measure.trial import Samples, Watch

OTHERS = 0.05
"""Share of all CPU time that other threads may have, for what the runner itself does."""
OTHERS_NS = 50_000
"""The same for each process, in nanoseconds."""
WAITING = 0.2
"""Share of time that one thread may wait by itself."""
REUSE, REUSE_ONCE = 1.25, 1.5
"""How many times longer runs with changed inputs may take: the median of several processes, and one
process alone."""
REUSE_THREADS_ONCE = 4.0
"""The same for one process with several threads, which spin while they wait for each other."""
FEWEST = 3
"""Fewest samples of either kind to compare."""
SLOW_CLOCK, SLOW_CLOCK_ONCE = 2.0, 3.0
"""How many times longer a launch may take by the engine's clock than its runs by the runner's:
every one of several processes, and one alone."""
START_NS, START_ONCE_NS = 5e6, 10e6
"""Time of a launch beside its runs, likewise."""


def hidden_work(processes: Sequence[Samples], sampler: Sampler) -> list[str]:
    """Reasons not to believe the times of these processes; empty for every honest kernel."""
    watched = [process for process in processes if process.watch and process.wall_ns]
    if not watched:
        return []
    own = not sampler.bench.libraries
    checks = [
        _others(watched) if own and sampler.clock == "cpu" else "",
        _left(watched) if own else "",
        _sleep(watched) if own and sampler.clock == "cpu" and sampler.threads == 1 else "",
        _reuse(watched, sampler),
        _slow_clock(watched, sampler),
    ]
    return [text for text in checks if text]


def _watch(process: Samples) -> Watch:
    assert process.watch
    return process.watch


def _total(process: Samples, times: Sequence[float]) -> float:
    return sum(times) * process.inner


def _others(processes: Sequence[Samples]) -> str:
    others = sum(sum(_watch(process).others_ns) for process in processes)
    own = sum(_total(process, process.cpu_ns) for process in processes)
    if others <= OTHERS * (own + others) + OTHERS_NS * len(processes):
        return ""
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
    wall = sum(_total(process, process.wall_ns) for process in processes)
    cpu = sum(_total(process, process.cpu_ns) for process in processes)
    ready = wall - sum(_watch(process).queued_ns for process in processes)
    waited = ready - cpu
    switched = [count > 0 for process in processes for count in _watch(process).voluntary]
    if waited <= WAITING * ready or 2 * sum(switched) < len(switched):
        return ""
    return (
        f"the kernel slept or waited for {waited / ready:.0%} of {time_text(ready)}, which its CPU "
        "time does not show: use measure.clock=wall if it has to wait"
    )


def _reuse(processes: Sequence[Samples], sampler: Sampler) -> str:
    """Runs whose inputs changed against runs with the inputs of the run before, by CPU time: on a
    busy machine several threads wait for each other for any time. Of several, one may have to do
    the work of all."""
    ratios = []
    for process in processes:
        times = process.cpu_ns
        varied = _watch(process).varied
        changed = sorted(time for time, of in zip(times, varied, strict=False) if of)
        same = sorted(time for time, of in zip(times, varied, strict=False) if not of)
        if min(len(changed), len(same)) < FEWEST:
            continue
        # Apart from each other, and not by one sample alone.
        apart = changed[len(changed) // 4] > same[-1 - len(same) // 4]
        ratios.append((median(changed) / max(median(same), 1e-3) if apart else 1.0, changed, same))
    if not ratios:
        return ""
    ratio = median(found for found, *_ in ratios)
    several = sampler.threads > 1
    once = REUSE_THREADS_ONCE if several else REUSE_ONCE
    if ratio <= (REUSE if len(ratios) > 1 else once) * sampler.threads:
        return ""
    _, changed, same = max(ratios, key=lambda found: found[0])
    return (
        f"a run takes {time_text(median(changed))} of CPU time after its inputs changed, and "
        f"{time_text(median(same))} with the same inputs again: results are kept between calls. A "
        "workload whose kernels keep state has to declare it (stateful: true)"
    )


def _slow_clock(processes: Sequence[Samples], sampler: Sampler) -> str:
    """The engine's own clock against the sum of all runs."""
    policy, several = sampler.policy, len(processes) > 1
    factor, start = (SLOW_CLOCK, START_NS) if several else (SLOW_CLOCK_ONCE, START_ONCE_NS)
    worst = None
    for process in processes:
        watch = _watch(process)
        samples = _total(process, process.wall_ns)
        longest = max(max(process.wall_ns), policy.min_sample_us * 1000)
        known = samples + (policy.warmup + CALIBRATIONS) * longest
        if not watch.elapsed_ns or watch.elapsed_ns - watch.delays_ns <= factor * known + start:
            return ""
        if worst is None or watch.elapsed_ns / known > worst[0]:
            worst = (watch.elapsed_ns / known, watch.elapsed_ns, known)
    if worst is None:
        return ""
    return (
        f"a launch took {time_text(worst[1])} by the engine's clock, and its runs at most "
        f"{time_text(worst[2])} by the clock in the kernel's process: that clock is wrong, or work "
        "is done outside of the samples"
    )
