"""A machine's measured peaks and bandwidths as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from kernloom.base.expressions import format_size
from kernloom.base.units import three_digits
from kernloom.measure.calibration import DTYPES
from kernloom.measure.plausible import calibrated_ceiling
from kernloom.measure.roof import COLD, MEMORY, MULTIPLY_ADD, PATTERNS, Calibration
from kernloom.report.page import print_rows

CALIBRATE_COMMAND = "kernloom doctor --calibrate"


def print_calibration(calibration: Calibration | None, file: TextIO) -> None:
    """Print tables of peaks and bandwidths: of one core and, if there are more, of all."""
    if calibration is None:
        print(f"This machine's roof has not been measured: {CALIBRATE_COMMAND}", file=file)
        return
    cores = max((entry.threads for entry in calibration.peaks), default=1)
    many = f" of 1 core / {cores} cores" if cores > 1 else ""
    print(f"\npeak in GFLOP/s{many}, measured {calibration.created}", file=file)
    rates: dict[tuple[str, str], dict[int, float]] = {}
    for peak in calibration.peaks:
        if peak.mix != MULTIPLY_ADD:
            continue
        rates.setdefault((peak.arch, peak.dtype), {})[peak.threads] = peak.gflops
    print_rows(
        [
            {"arch": arch, **{dtype: _shown(rates.get((arch, dtype), {})) for dtype in DTYPES}}
            for arch in calibration.arches
        ],
        file,
    )
    print(f"\nbandwidth in GB/s{many}", file=file)
    rates = {}
    # Memory was measured with this CPU's own arch.
    own = next((entry.arch for entry in calibration.bandwidths if entry.level == MEMORY), "")
    for entry in calibration.bandwidths:
        if entry.arch == own:
            by_threads = rates.setdefault((entry.level, entry.pattern), {})
            by_threads[entry.threads] = entry.gbytes_per_s
    print_rows(
        [
            {
                "level": level,
                "window": format_size(calibration.windows[level]),
                **{pattern: _shown(rates.get((level, pattern), {})) for pattern in PATTERNS},
            }
            for level in (*calibration.levels, COLD, MEMORY)
            if level in calibration.windows
        ],
        file,
    )
    print(f"\n{_bounds(calibration)}", file=file)


def _bounds(calibration: Calibration) -> str:
    """What no result of one core may exceed: the best of all patterns and mixes, with the
    uncertainty."""
    ceilings = {dtype: calibrated_ceiling(calibration, dtype, 1) for dtype in DTYPES}
    found = [bound for ceiling in ceilings.values() if ceiling for bound in ceiling.flops]
    found += next((ceiling.bytes for ceiling in ceilings.values() if ceiling), ())
    texts = [
        f"{bound.what} {three_digits(bound.rate)} {bound.unit} +{bound.uncertainty:.0%}"
        for bound in found
    ]
    return f"results of one core are suspicious beyond {', '.join(texts)}"


def _shown(rates: Mapping[int, float]) -> str:
    return " / ".join(three_digits(rates[threads]) for threads in sorted(rates))
