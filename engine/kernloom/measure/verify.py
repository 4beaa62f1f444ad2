"""The verify stage: one untimed launch, compared with the golden.

Outputs are poisoned before it, and read-only inputs must be unchanged afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kernloom.base.errors import DeviceError
from kernloom.base.expressions import evaluate
from kernloom.config.schema import Workload
from kernloom.device.contract import LaunchResult, LaunchSettings
from kernloom.measure.allowances import Allowances
from kernloom.measure.bench import Bench, Setup
from kernloom.measure.data import Array, nan_warnings
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.inspect import sizes_of

NO_GOLDEN = "the golden was skipped: nothing shows that the results are right"
SHOWN = 3
"""Number of wrong elements that a message shows."""


class Verify(Stage):
    """Artifacts -> whether every output is right, its error, and what is not proven."""

    phase = "run"
    inputs = {"artifacts": "artifacts"}
    outputs = {"verified": "verified", "error": "number", "warnings": "warnings"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        bench = context.need(Bench)
        setup = bench.setup(inputs["artifacts"], fresh=True)
        _, error = verified_launch(bench, setup, LaunchSettings(inner=1, samples=1))
        experiment = context.experiment
        goldens = bench.data.goldens(experiment.workload, experiment.seed)
        warnings = nan_warnings(goldens) if goldens else (NO_GOLDEN,)
        return {"verified": True, "error": error, "warnings": warnings}


def verified_launch(
    bench: Bench, setup: Setup, settings: LaunchSettings
) -> tuple[LaunchResult, float]:
    """A launch with every output and input checked, and the largest error as a share of the
    tolerance."""
    experiment, data = bench.experiment, bench.data
    goldens = data.goldens(experiment.workload, setup.seed)
    only_read = [name for name in setup.inputs if name not in setup.written]
    result, found = setup.launch_and_view(settings, [*goldens, *only_read])
    worst = 0.0
    for name, golden in goldens.items():
        error = compare(name, found[name], golden, experiment.workload, data.allowances)
        worst = max(worst, error)
    check_unchanged(found, setup, only_read)
    return result, worst


def check_unchanged(found: Mapping[str, Array], setup: Setup, names: Iterable[str]) -> None:
    """Raise if an input has other bytes than it was given."""
    for name in names:
        if not _same_bytes(found[name], setup.inputs[name]):
            raise DeviceError(f"{name} was changed, but no kernel may write it", status="wrong")


def _same_bytes(result: Array, given: Array) -> bool:
    unit = np.uint8 if result.nbytes % 8 else np.uint64
    first, second = (np.ascontiguousarray(a).reshape(-1).view(unit) for a in (result, given))
    return first.size == second.size and bool((first == second).all())


def compare(
    name: str,
    result: Array,
    golden: Array,
    workload: Workload,
    allowances: Allowances | None = None,
) -> float:
    """The largest error as a share of the tolerance; raises if it is above 1."""
    rtol, atol = workload.derive(tolerance_of, result.dtype.name)
    allowances = Allowances() if allowances is None else allowances
    if (share := allowances.largest_share(name, result, golden, rtol, atol)) <= 1:
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


def tolerance_of(workload: Workload, dtype: str) -> tuple[float, float]:
    """Relative and absolute tolerance."""
    tolerance = workload.tolerance_for(dtype)
    written = (tolerance.rtol, tolerance.atol)
    sizes = sizes_of(workload) if any(isinstance(text, str) for text in written) else {}
    rtol, atol = (float(evaluate(text, sizes)) for text in written)
    return rtol, atol


def unwritten(result: Array) -> Array:
    """Mask of elements that still hold the poison; a computed NaN has other bits."""
    if result.dtype.kind != "f":
        return np.zeros(result.shape, dtype=bool)
    bits = result.view(f"u{result.dtype.itemsize}")
    poisoned: Array = bits == np.iinfo(bits.dtype).max
    return poisoned


def _difference(
    name: str, result: Array, golden: Array, bad: Array, rtol: float, atol: float
) -> str:
    first, *others = np.argwhere(bad)[:SHOWN].tolist()
    missing = int(unwritten(result).sum())
    never = f"; {missing} elements were never written" if missing else ""

    def shown(index: list[int]) -> str:
        at = tuple(index)
        return f"{name}{index} is {result[at]:.9g}, golden {golden[at]:.9g}"

    then = "".join(f"; {shown(index)}" for index in others)
    return (
        f"{shown(first)}; "
        f"{int(bad.sum())} of {bad.size} elements are off by more than "
        f"{atol:.3g} + {rtol:.3g}*|golden|{never}{then}"
    )
