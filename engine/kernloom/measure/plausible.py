"""The least time that a machine needs for a run's work, whatever its kernels do. A shorter time
shows that work was skipped, or that the workload states more than there is to do.

Every bound is generous: an honest kernel must never reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernloom.base.expressions import evaluate
from kernloom.base.units import three_digits, time_text
from kernloom.config.schema import Arch, Workload
from kernloom.measure.roof import MEMORY, PRIVATE, Calibration, with_threads
from kernloom.plan.inspect import inputs_of, sizes_of, tensors_of
from kernloom.plan.schedule import ELEMENT

LEAST_UNCERTAINTY = 0.25
"""Clock frequencies, neighbours and the host of a virtual machine change between a calibration and
a measurement."""
SPREADS = 2.0
"""Uncertainty in multiples of the spread between the calibration's processes."""
GIGAHERTZ = 8.0
"""No core has a faster clock."""
VECTOR_BYTES = 64
OPERATIONS = 16
"""Operations per lane and cycle that no core exceeds: two multiply-add units and two adders do 6,
matrix extensions more."""
VECTORS_MOVED = 4
"""Vectors that no core loads and stores more of in a cycle."""
ANY_GFLOPS, ANY_GBYTES_PER_S = 1e7, 1e5
"""Bounds of a device of which nothing is known, far above any single one there is."""


@dataclass(frozen=True)
class Work:
    """The least work of a run, whatever its kernels do."""

    flops: float
    bytes: float


@dataclass(frozen=True)
class Bound:
    """A rate that a machine cannot exceed, for the work beyond the first `exempt` units."""

    what: str
    unit: str
    rate: float
    """Units per nanosecond."""
    uncertainty: float = 0.0
    exempt: float = 0.0

    def least_ns(self, work: float) -> float:
        return max(0.0, work - self.exempt) / (self.rate * (1 + self.uncertainty))


@dataclass(frozen=True)
class Ceiling:
    """The bounds of a machine, for one element type and number of threads."""

    origin: str
    flops: tuple[Bound, ...]
    bytes: tuple[Bound, ...]

    def doubt(self, work: Work, ns: float) -> str:
        """Why a run cannot have done its work in that time, with both rates; empty if it can."""
        if ns <= 0:
            return ""
        amounts = ((work.flops, self.flops), (work.bytes, self.bytes))
        broken = [
            (bound.least_ns(amount), bound, amount)
            for amount, bounds in amounts
            for bound in bounds
            if bound.least_ns(amount) > ns
        ]
        if not broken:
            return ""
        least, bound, amount = max(broken, key=lambda found: found[0])
        rate = (amount - bound.exempt) / ns
        margin = f" (+{bound.uncertainty:.0%})" if bound.uncertainty else ""
        return (
            f"{time_text(ns)} is less than the {time_text(least)} that this takes at least: it "
            f"would be {_rate(rate, bound.unit)}, and {bound.what} gives at most "
            f"{_rate(bound.rate, bound.unit)}{margin}, {self.origin}. Work is skipped, or the "
            "workload's cost is more than there is to do"
        )


def _rate(rate: float, unit: str) -> str:
    return f"{rate:,.0f} {unit}" if rate >= 1000 else f"{three_digits(rate)} {unit}"


def least_work(workload: Workload) -> Work:
    """What a run has to do at least: the stated operations; the stated bytes, but no more than
    inputs and outputs have, since what is between them need not be moved.

    Without stated bytes, those of the outputs that are checked and written in full.
    """
    sizes, tensors = sizes_of(workload), tensors_of(workload)
    accesses: dict[str, set[str]] = {}
    for name, access in workload.accesses():
        accesses.setdefault(name, set()).add(access)
    inputs = workload.derive(inputs_of)
    outputs = [name for name in workload.golden if name in tensors]
    stated = evaluate(workload.cost.bytes, sizes)
    if stated:
        bytes = min(stated, sum(tensors[name].nbytes for name in (*inputs, *outputs)))
    else:
        bytes = sum(tensors[name].nbytes for name in outputs if accesses.get(name) == {"write"})
    return Work(float(evaluate(workload.cost.flops, sizes)), float(bytes))


def calibrated_ceiling(calibration: Calibration, dtype: str, threads: int) -> Ceiling | None:
    """The best that was measured of this machine, with any of its vectors and patterns; None for
    an element type without a peak."""
    peaks = _best((p.threads, p.gflops, p.processes) for p in calibration.peaks if p.dtype == dtype)
    if not peaks:
        return None
    rates, spread = peaks
    flops = Bound(f"{dtype} peak", "GFLOP/s", with_threads(rates, threads), _uncertainty(spread))
    return Ceiling(
        f"as calibrated {calibration.created[:10]}",
        (flops,),
        tuple(_levels(calibration, threads)),
    )


def _levels(calibration: Calibration, threads: int) -> Iterator[Bound]:
    """The bounds of each level: nearer ones cannot hold more than their size."""
    cores = max((entry.threads for entry in calibration.bandwidths), default=1)
    exempt = 0.0
    for level in (*calibration.levels, MEMORY):
        found = _best(
            (b.threads, b.gbytes_per_s, b.processes)
            for b in calibration.bandwidths
            if b.level == level
        )
        if found:
            rates, spread = found
            rate = with_threads(rates, threads)
            yield Bound(level, "GB/s", rate, _uncertainty(spread), exempt)
        if level != MEMORY:
            own = min(threads, cores) if level in PRIVATE else 1
            exempt += calibration.levels[level] * own


def _best(
    found: Iterable[tuple[int, float, tuple[float, ...]]],
) -> tuple[dict[int, float], float] | None:
    """Threads -> the best rate, and the largest spread between the processes of a best one."""
    best: dict[int, tuple[float, tuple[float, ...]]] = {}
    for threads, rate, processes in found:
        if threads not in best or rate > best[threads][0]:
            best[threads] = (rate, processes)
    if not best:
        return None
    spreads = [1 - min(runs) / max(runs) for _, runs in best.values() if runs and max(runs) > 0]
    return {threads: rate for threads, (rate, _) in best.items()}, max(spreads, default=0.0)


def _uncertainty(spread: float) -> float:
    return max(LEAST_UNCERTAINTY, SPREADS * spread)


def coarse_ceiling(arch: Arch, dtype: str, threads: int, cores: int) -> Ceiling:
    """What no processor does, for a machine that was not calibrated."""
    running = max(1, min(threads, max(cores, arch.cores)))
    vector = max(VECTOR_BYTES, arch.vector_bytes)
    flops = OPERATIONS * (vector / ELEMENT[dtype]) * GIGAHERTZ * running
    moved = VECTORS_MOVED * vector * GIGAHERTZ * running
    return Ceiling(
        f"as no processor of arch {arch.name} does more",
        (Bound(_cores(running), "GFLOP/s", flops),),
        (Bound(_cores(running), "GB/s", moved),),
    )


def _cores(number: int) -> str:
    return "one core" if number == 1 else f"{number} cores"


ANY_DEVICE = Ceiling(
    "as no device does more",
    (Bound("a device", "GFLOP/s", ANY_GFLOPS),),
    (Bound("a device", "GB/s", ANY_GBYTES_PER_S),),
)


def slowest_ns(metrics: Mapping[str, float]) -> float:
    """The upper bound of a time's interval, which is judged: a result is not accused of what its
    own interval leaves open."""
    return float(metrics.get("ci_high_ns") or metrics.get("median_ns") or 0.0)
