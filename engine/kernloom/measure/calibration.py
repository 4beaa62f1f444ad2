"""Measures this machine's peak and bandwidth, in the runner and for as long as kernels are
measured.

A round is one fresh process that runs every probe once. Each process counts by its best sample; the
peak is the best process, because other load can only lower it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernloom.device.contract import Buffer, Call, Device, LaunchSettings, Scalar, Session
from kernloom.measure.roof import COLD, MEMORY, MIXES, MULTIPLY_ADD, PRIVATE, Bandwidth, Peak
from kernloom.plan.schedule import ELEMENT

DTYPES = ("float32", "float64", "int32")
STREAMED = "float32"
"""Element type for the memory probes; bandwidth does not depend on it."""
ROUNDS = 3
TIMEOUT_S = 60.0
ARGUMENTS = 6
OPERATIONS = {MULTIPLY_ADD: 2.0, "add": 1.0, "mixed": 1.5}
"""Operations per chain; half of mixed chains are sums."""
ITERATIONS = 20_000
"""Multiply-adds per call, so many that the start of threads does not count."""
TRAFFIC = 4 * 1024 * 1024
"""Least bytes that a core moves per call, for the same reason."""
GRAIN = 4096
"""Windows are whole pages for every core, and therefore whole vectors."""
LEAST_MEMORY = 64 * 1024 * 1024
BEYOND_CACHES = 2
"""Size of the memory window as a multiple of the last cache: farther beyond, fewer of its hits are
left, and kernels with less data would exceed the roof."""
COLD_WINDOW = 2 * 1024 * 1024
"""The default size of a workload's tensors."""
VARIANTS = {
    "read": ("read", "read_ahead"),
    "copy": ("copy", "copy_streamed"),
    "update": ("update", "update_ahead", "update_streamed"),
    "write": ("write", "write_streamed"),
}
"""Pattern -> functions that implement it; streaming stores and prefetches only help in memory."""
MOVED = {"read": 1.0, "copy": 1.0, "update": 1.5, "write": 1.0}
"""Bytes moved per byte of the window, counted as workloads count them."""


@dataclass(frozen=True)
class Library:
    """The compiled probes of one arch and element type."""

    arch: str
    dtype: str
    path: Path
    lanes: int
    chains: tuple[int, ...]


@dataclass(frozen=True)
class Probe:
    """One function to run: what it measures, what it needs, and the work of one call."""

    finds: Peak | Bandwidth
    path: Path
    entry: str
    nbytes: int
    """Sizes of x and y."""
    count: int
    passes: int
    work: float
    """Operations or bytes per call."""


def chains_for(registers: int) -> tuple[int, ...]:
    """Numbers of independent chains to try: enough to hide latency, limited by the registers."""
    return tuple(count for count in (8, 12, 14, 24) if count + 2 <= registers)


def windows_for(
    levels: Mapping[str, int], available: int, *, flushes: bool = False
) -> dict[str, int]:
    """Level -> bytes to traverse: well inside the level, and well beyond the previous one."""
    windows, before = {}, 0
    for level, size in levels.items():
        windows[level] = _whole(math.isqrt(before * size) if before else size // 2)
        before = size
    if flushes:
        windows[COLD] = COLD_WINDOW
    wanted = max(BEYOND_CACHES * before, LEAST_MEMORY)
    # Two buffers, with room to spare.
    windows[MEMORY] = _whole(min(wanted, available // 8))
    return windows


def _whole(nbytes: int) -> int:
    return max(1, nbytes // (2 * GRAIN)) * 2 * GRAIN


def probes_of(libraries: Sequence[Library], windows: Mapping[str, int], cores: int) -> list[Probe]:
    """All probes, for one core and for all cores."""
    threads = sorted({1, cores})
    first = libraries[0].arch
    found = [
        probe
        for library in libraries
        for t in threads
        for mix in (MIXES if library.arch == first else (MULTIPLY_ADD,))
        for probe in _peaks(library, t, mix)
    ]
    for library in libraries:
        if library.dtype == STREAMED:
            for level, window in windows.items():
                if level not in (MEMORY, COLD) or library.arch == first:
                    for t in threads:
                        found += _streams(library, level, window, t)
    return found


def _peaks(library: Library, threads: int, mix: str) -> Iterator[Probe]:
    for chains in library.chains:
        yield Probe(
            Peak(library.arch, library.dtype, threads, 0.0, mix=mix),
            library.path,
            f"{mix}_{chains}",
            threads * chains * library.lanes * ELEMENT[library.dtype],
            ITERATIONS * threads,
            1,
            OPERATIONS[mix] * ITERATIONS * threads * chains * library.lanes,
        )


def _streams(library: Library, level: str, window: int, threads: int) -> Iterator[Probe]:
    whole = window * threads if level in PRIVATE else _whole(window // threads) * threads
    passes = 1 if level == COLD else max(1, TRAFFIC * threads // whole)
    for pattern, functions in VARIANTS.items():
        for function in functions if level == MEMORY else functions[:1]:
            # Two tensors share the window.
            gone_over = whole if pattern in ("read", "write") else whole // 2
            yield Probe(
                Bandwidth(library.arch, level, pattern, threads, 0.0),
                library.path,
                function,
                whole,
                gone_over // ELEMENT[STREAMED],
                passes,
                MOVED[pattern] * whole * passes,
            )


def measure(
    device: Device,
    probes: Sequence[Probe],
    settings: LaunchSettings,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rounds: int = ROUNDS,
) -> tuple[tuple[Peak, ...], tuple[Bandwidth, ...]]:
    """The best of each quantity, with the results of every process."""
    rates: dict[Probe, list[float]] = {probe: [] for probe in probes}
    waiting, done = list(probes), 0
    for round in range(rounds):
        with device.open(timeout=TIMEOUT_S) as session:
            desk = _ProbeSession(session)
            for probe in waiting:
                progress(done, len(probes) + (rounds - 1) * len({p.finds for p in probes}))
                rates[probe].append(desk.rate(probe, settings))
                done += 1
        if round == 0:
            # Among several functions for the same quantity, later rounds repeat only the best.
            waiting = list({p.finds: p for p in sorted(probes, key=rates.__getitem__)}.values())
    best = {probe.finds: rates[probe] for probe in waiting}
    peaks = [
        replace(finds, gflops=max(found), processes=tuple(found))
        for finds, found in best.items()
        if isinstance(finds, Peak)
    ]
    bandwidths = [
        replace(finds, gbytes_per_s=max(found), processes=tuple(found))
        for finds, found in best.items()
        if isinstance(finds, Bandwidth)
    ]
    return tuple(peaks), tuple(bandwidths)


class _ProbeSession:
    """One process and its buffers by size."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._buffers: dict[int, tuple[Buffer, Buffer]] = {}

    def rate(self, probe: Probe, settings: LaunchSettings) -> float:
        """Operations or bytes per nanosecond."""
        dtype = probe.finds.dtype if isinstance(probe.finds, Peak) else STREAMED
        threads = probe.finds.threads
        numbers = (probe.count, probe.passes, threads)
        x, y = self._pair(probe.nbytes)
        call = Call(
            self._session.load(probe.path, ARGUMENTS, probe.entry),
            (x, y, *map(Scalar, numbers), Scalar(3 if dtype == "int32" else 0.5, dtype)),
        )
        cold = isinstance(probe.finds, Bandwidth) and probe.finds.level == COLD
        result = self._session.launch([call], replace(settings, cold=cold))
        # The best sample: whatever disturbs a probe makes it slower.
        ns = min(result.cpu_ns if threads == 1 else result.wall_ns)
        return probe.work * result.inner / ns

    def _pair(self, nbytes: int) -> tuple[Buffer, Buffer]:
        if nbytes not in self._buffers:
            pair = tuple(self._session.allocate(nbytes, label) for label in "xy")
            for buffer in pair:
                self._session.fill(buffer, 0)
            self._buffers[nbytes] = (pair[0], pair[1])
        return self._buffers[nbytes]
