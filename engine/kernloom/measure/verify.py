"""The verify stage: one untimed launch, compared with the golden.

Outputs are poisoned before it, and what a kernel only reads must be as it was afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernloom.config.schema import Tolerance, Workload
from kernloom.device.contract import LaunchSettings
from kernloom.errors import DeviceError
from kernloom.expressions import evaluate
from kernloom.measure.bench import Bench, Setup
from kernloom.measure.data import Array
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.inspect import sizes_of

DEFAULT_TOLERANCE = {
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float64": Tolerance(rtol=1e-10, atol=1e-11),
}
EXACT = Tolerance(rtol=0.0, atol=0.0)


class Verify(Stage):
    """Artifacts -> whether every output is right, and how far off it is."""

    phase = "run"
    inputs = {"artifacts": "artifacts"}
    outputs = {"verified": "verified", "error": "number"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        bench = context.need(Bench)
        setup = bench.setup(inputs["artifacts"], fresh=True)
        setup.launch(LaunchSettings(warmup=0, inner=1, samples=1, min_sample_ns=0))
        return {"verified": True, "error": verify_tensors(bench, setup)}


def verify_tensors(bench: Bench, setup: Setup) -> float:
    """Check every output and input on the device; the largest error as a share of tolerance."""
    experiment = bench.experiment
    worst = 0.0
    for name, golden in bench.data.goldens(experiment.workload, experiment.seed).items():
        worst = max(worst, compare(name, setup.read(name), golden, experiment.workload))
    for name, array in setup.inputs.items():
        if name not in setup.written and not _same_bytes(setup.read(name), array):
            raise DeviceError(f"{name} was changed, but no kernel may write it", status="wrong")
    return worst


def _same_bytes(result: Array, given: Array) -> bool:
    first, second = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (result, given))
    return first.size == second.size and bool((first == second).all())


def compare(name: str, result: Array, golden: Array, workload: Workload) -> float:
    """The largest error as a share of what is tolerated; above 1 it is wrong and raises."""
    dtype = str(result.dtype)
    tolerance = workload.tolerance.get(dtype, DEFAULT_TOLERANCE.get(dtype, EXACT))
    sizes = sizes_of(workload)
    rtol = float(evaluate(tolerance.rtol, sizes))
    atol = float(evaluate(tolerance.atol, sizes))
    if (share := _share_of_tolerance(result, golden, rtol, atol)) <= 1:
        return share
    with np.errstate(all="ignore"):
        error = np.abs(result - golden)
        allowed = atol + rtol * np.abs(golden)
        same = (np.isnan(golden) & np.isnan(result)) | (result == golden)
        close = np.isfinite(golden) & (error <= allowed)
        bad = ~(close | same) | unwritten(result)
    if bad.any():
        raise DeviceError(_difference(name, result, golden, bad, rtol, atol), status="wrong")
    comparable = np.isfinite(golden) & (allowed > 0)
    return float(np.max(error[comparable] / allowed[comparable], initial=0.0))


def _share_of_tolerance(result: Array, golden: Array, rtol: float, atol: float) -> float:
    """The largest error as a share of tolerance in as few passes as there can be; NaN where it
    takes a closer look: anything that is not a finite number makes it NaN or infinite."""
    if atol <= 0 or not result.size or result.dtype.kind != "f" or golden.dtype.kind != "f":
        return float("nan")
    with np.errstate(all="ignore"):
        allowed = np.abs(golden)
        allowed *= rtol
        allowed += atol
        error = result - golden
        np.abs(error, out=error)
        error /= allowed
        # An infinite golden allows anything: its share is NaN, or zero where the result is finite.
        return float(error.max()) if np.isfinite(allowed.sum()) else float("nan")


def unwritten(result: Array) -> Array:
    """Which elements still hold the poison; a NaN that was computed has other bits."""
    if result.dtype.kind != "f":
        return np.zeros(result.shape, dtype=bool)
    bits = result.view(f"u{result.dtype.itemsize}")
    poisoned: Array = bits == np.iinfo(bits.dtype).max
    return poisoned


def _difference(
    name: str, result: Array, golden: Array, bad: Array, rtol: float, atol: float
) -> str:
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    missing = int(unwritten(result).sum())
    never = f"; {missing} elements were never written" if missing else ""
    return (
        f"{name}{list(first)} is {result[first]:.9g}, golden {golden[first]:.9g}; "
        f"{int(bad.sum())} of {bad.size} elements are off by more than "
        f"{atol:.3g} + {rtol:.3g}*|golden|{never}"
    )
