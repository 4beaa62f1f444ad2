"""The roof: the least time that this machine's peak and bandwidth allow for a run, and its limit.

Both are measured once, by `kernloom doctor --calibrate`, and stored per class of machine. A
calibration is not part of a trial's identity: it rates a time and does not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernloom.base.files import sha256_json
from kernloom.base.machine import machine_class
from kernloom.base.sealed import read_sealed, write_sealed

if TYPE_CHECKING:
    from kernloom.config.schema import Arch

FORMAT = 3
MEMORY = "memory"
COLD = "cold memory"
"""Memory under data that the caches could hold but do not: nothing has to be written back yet."""
PRIVATE = ("L1", "L2")
"""Levels that are private to each core."""
PATTERNS = {"read": 0.0, "update": 1 / 3, "copy": 1 / 2, "write": 1.0}
"""Access pattern -> the share of the moved bytes that are written."""

MULTIPLY_ADD = "multiply_add"
MIXES = (MULTIPLY_ADD, "add", "mixed")
"""Instructions of a peak: multiply-adds, the roof of kernels; sums; or both at once. Some cores add
beside their multiply-adds, or faster: only the best of all is a bound that nothing exceeds."""

T = TypeVar("T", bound="Peak | Bandwidth")


@dataclass(frozen=True)
class Vectors:
    """The vector features of an arch that determine its peak."""

    nbytes: int
    fma: bool


@dataclass(frozen=True)
class Peak:
    """Peak rate of an arch; a multiply-add counts as two operations."""

    arch: str
    dtype: str
    threads: int
    gflops: float
    processes: tuple[float, ...] = ()
    """The result of each process."""
    mix: str = MULTIPLY_ADD


@dataclass(frozen=True)
class Bandwidth:
    """Peak read or write rate of a level of memory."""

    arch: str
    level: str
    pattern: str
    threads: int
    gbytes_per_s: float
    processes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """The measurements of one class of machine."""

    created: str
    """ISO 8601, UTC."""
    kernloom: str
    toolchain: str
    machine: Mapping[str, Any]
    levels: Mapping[str, int]
    """Cache, nearest first -> its size in bytes."""
    arches: Mapping[str, Vectors]
    peaks: tuple[Peak, ...] = ()
    bandwidths: tuple[Bandwidth, ...] = ()
    windows: Mapping[str, int] = field(default_factory=dict)
    """Level -> bytes traversed to measure it."""


@dataclass(frozen=True)
class Roof:
    """The limiting resource of a run, and the run's least time."""

    limit: str
    ns: float


def roof_of(
    calibration: Calibration,
    arch: Arch,
    dtype: str,
    flops: float,
    bytes: float,
    threads: int = 1,
    *,
    footprint: float | None = None,
    written: float | None = None,
    cold: bool = False,
) -> Roof | None:
    """The roof of a run that does so many operations and moves so many bytes.

    The level of memory is the one that holds its `footprint`, the tensors (by default all bytes
    moved); `cold` caches hold nothing. The number of `written` bytes decides whether the pattern is
    reading, copying or updating; if unknown, the fastest is used. None if the calibration lacks the
    data.
    """
    name = _calibrated(calibration, arch)
    if name is None:
        return None
    roofs = []
    if flops > 0:
        peaks = {
            p.threads: p.gflops
            for p in calibration.peaks
            if (p.arch, p.dtype, p.mix) == (name, dtype, MULTIPLY_ADD)
        }
        if not peaks:
            return None
        what = "FMA peak" if calibration.arches[name].fma else "multiply-add peak"
        roofs.append(Roof(f"{dtype} {what}", flops / with_threads(peaks, threads)))
    if bytes > 0:
        held = bytes if footprint is None else footprint
        level = level_of(calibration, held, threads)
        level = COLD if cold and level != MEMORY else level
        pattern = _pattern(written, bytes)
        rate = _bandwidth(calibration, name, level, pattern, threads)
        if rate is None:
            return None
        if level != COLD:
            rate = _straddling(calibration, name, level, rate, pattern, held, threads)
        roofs.append(Roof(f"{level} bandwidth", bytes / rate))
    return max(roofs, key=lambda roof: roof.ns, default=None)


def level_of(calibration: Calibration, footprint: float, threads: int) -> str:
    """The nearest level that holds so many bytes; each thread adds the caches of its core."""
    cores = max((entry.threads for entry in calibration.bandwidths), default=1)
    for level, size in calibration.levels.items():
        if footprint <= size * (min(threads, cores) if level in PRIVATE else 1):
            return level
    return MEMORY


def _calibrated(calibration: Calibration, arch: Arch) -> str | None:
    """The calibrated arch of that name, else one with the same vectors."""
    if arch.name in calibration.arches:
        return arch.name
    alike = vectors_of(arch)
    return next((name for name, known in calibration.arches.items() if known == alike), None)


def vectors_of(arch: Arch) -> Vectors:
    """x86 arches declare FMA; the others always have it."""
    return Vectors(arch.vector_bytes, arch.isa != "x86_64" or "fma" in arch.features)


def _pattern(written: float | None, bytes: float) -> str | None:
    if written is None:
        return None
    share = written / bytes
    return min(PATTERNS, key=lambda pattern: abs(PATTERNS[pattern] - share))


def _bandwidth(
    calibration: Calibration, arch: str, level: str, pattern: str | None, threads: int
) -> float | None:
    # Vectors of any width saturate memory, so it is measured with the first arch only.
    here = [b for b in calibration.bandwidths if b.level == level]
    own = [b for b in here if b.arch == arch] or here
    rates = [
        with_threads(found, threads)
        for name in PATTERNS
        if pattern in (None, name)
        and (found := {b.threads: b.gbytes_per_s for b in own if b.pattern == name})
    ]
    return max(rates, default=None)


def _straddling(
    calibration: Calibration,
    arch: str,
    level: str,
    rate: float,
    pattern: str | None,
    footprint: float,
    threads: int,
) -> float:
    """The rate for tensors that the nearer level holds in part: between both levels' rates, by the
    place of the footprint between that level's size and the window that the farther one was
    measured with."""
    order = [*calibration.levels, MEMORY]
    at = order.index(level)
    if not at or level not in calibration.windows:
        return rate
    cores = max((entry.threads for entry in calibration.bandwidths), default=1)
    held, window = (
        size * (min(threads, cores) if of in PRIVATE else 1)
        for of, size in (
            (order[at - 1], calibration.levels[order[at - 1]]),
            (level, calibration.windows[level]),
        )
    )
    near = _bandwidth(calibration, arch, order[at - 1], pattern, threads)
    if near is None or near <= rate or not held < footprint < window:
        return rate
    share = (footprint - held) / (window - held)
    return 1 / ((1 - share) / near + share / rate)


def with_threads(rates: Mapping[int, float], threads: int) -> float:
    """One core's rate times the threads, limited by the rate of all cores."""
    one, most = rates[min(rates)], max(rates.values())
    return most if threads >= max(rates) else min(one * threads, most)


def calibration_file(folder: Path, machine: Mapping[str, Any] | None = None) -> Path:
    """The calibration file of a class of machine; by default this one's."""
    return folder / f"{sha256_json(machine or machine_class())[:16]}.json"


def save_calibration(calibration: Calibration, folder: Path) -> Path:
    path = calibration_file(folder, calibration.machine)
    write_sealed(path, {"format": FORMAT, **asdict(calibration)}, indent=1)
    return path


def load_calibration(
    folder: Path,
    machine: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda note: None,
) -> Calibration | None:
    """The calibration of this class of machine; None if it is missing or unreadable.

    `say` receives a message about a file that cannot be used.
    """
    path = calibration_file(folder, machine)
    try:
        data = read_sealed(path)
        if data.pop("format", None) != FORMAT:
            raise ValueError("another version of Kernloom wrote it")
        return Calibration(
            **{
                **data,
                "levels": dict(sorted(data["levels"].items())),
                "arches": {name: Vectors(**found) for name, found in data["arches"].items()},
                "peaks": _entries(Peak, data["peaks"]),
                "bandwidths": _entries(Bandwidth, data["bandwidths"]),
            }
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        say(
            f"the calibration {path} cannot be used: {error}; measure this machine's roof again "
            "with `kernloom doctor --calibrate`"
        )
        return None


def _entries(cls: type[T], entries: Iterable[Mapping[str, Any]]) -> tuple[T, ...]:
    return tuple(cls(**{**entry, "processes": tuple(entry["processes"])}) for entry in entries)
