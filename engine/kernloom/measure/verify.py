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
from kernloom.measure.allowances import Allowances, Bounds, units
from kernloom.measure.bench import Bench, Setup
from kernloom.measure.data import nan_warnings
from kernloom.measure.fills import Array
from kernloom.measure.trivial import too_wide
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
        warnings: tuple[str, ...] = (NO_GOLDEN,)
        if goldens:
            warnings = (*nan_warnings(goldens), *_too_wide(bench))
        return {"verified": True, "error": error, "warnings": warnings}


def _too_wide(bench: Bench) -> tuple[str, ...]:
    """Warnings about tolerances; points of a sweep with the same data share them."""
    workload, seed, data = bench.experiment.workload, bench.experiment.seed, bench.data
    goldens = data.goldens(workload, seed)
    dtypes = {name: (workload.tensors[name].dtype or workload.dtype) for name in goldens}
    bounds = {name: workload.derive(bounds_of, dtype) for name, dtype in dtypes.items()}
    inputs, regions = data.inputs(workload, seed), data.regions(workload, seed)
    return too_wide(goldens, inputs, regions, dtypes, bounds)


def verified_launch(
    bench: Bench, setup: Setup, settings: LaunchSettings
) -> tuple[LaunchResult, float]:
    """A launch with every output and input checked, and the largest error as a share of the
    tolerance."""
    result, found = setup.launch_and_view(settings, _checked(bench, setup))
    return result, _check(bench, setup, found)


def check_results(bench: Bench, setup: Setup) -> float:
    """The same for the last launch."""
    return _check(bench, setup, setup.view(_checked(bench, setup)))


def _checked(bench: Bench, setup: Setup) -> list[str]:
    """Outputs, and inputs that no kernel may write."""
    goldens = bench.data.goldens(bench.experiment.workload, setup.seed)
    return [*goldens, *(name for name in setup.inputs if name not in setup.written)]


def _check(bench: Bench, setup: Setup, found: Mapping[str, Array]) -> float:
    workload, data = bench.experiment.workload, bench.data
    goldens = data.goldens(workload, setup.seed)
    regions = data.regions(workload, setup.seed)
    worst = 0.0
    for name, golden in goldens.items():
        region = regions.get(name)
        error = compare(name, found[name], golden, workload, data.allowances, region)
        worst = max(worst, error)
    check_unchanged(found, setup.inputs, [name for name in found if name not in goldens])
    return worst


def check_unchanged(
    found: Mapping[str, Array], inputs: Mapping[str, Array], names: Iterable[str]
) -> None:
    """Raise if an input has other bytes than it was given."""
    for name in names:
        if not same_bytes(found[name], inputs[name]):
            raise DeviceError(f"{name} was changed, but no kernel may write it", status="wrong")


def same_bytes(result: Array, given: Array) -> bool:
    unit = np.uint8 if result.nbytes % 8 else np.uint64
    first, second = (np.ascontiguousarray(a).reshape(-1).view(unit) for a in (result, given))
    return first.size == second.size and bool((first == second).all())


def compare(
    name: str,
    result: Array,
    golden: Array,
    workload: Workload,
    allowances: Allowances | None = None,
    region: Array | None = None,
    rounding: Array | None = None,
) -> float:
    """The largest error as a share of the tolerance; raises if it is above 1. Only a `region` is
    compared, if there is one; `rounding` adds to the allowed error of each element."""
    bounds = workload.derive(bounds_of, result.dtype.name)
    allowances = Allowances() if allowances is None else allowances
    whole = region is None and rounding is None
    if whole and (share := allowances.largest_share(name, result, golden, bounds)) <= 1:
        return share
    with np.errstate(all="ignore"):
        error = _errors(result, golden)
        allowed = bounds.allowed(golden, result.dtype)
        if rounding is not None:
            allowed = allowed + rounding
        same = (np.isnan(golden) & np.isnan(result)) | (result == golden)
        close = np.isfinite(golden) & (error <= allowed)
        bad = ~(close | same) | unwritten(result)
    comparable = np.isfinite(golden) & (allowed > 0)
    if region is not None:
        bad &= region
        comparable &= region
    if bad.any():
        raise DeviceError(_difference(name, result, golden, bad, bounds), status="wrong")
    return float(np.max(error[comparable] / allowed[comparable], initial=0.0))


def _errors(result: Array, golden: Array) -> Array:
    """The distance of each element from its golden."""
    if result.dtype.kind not in "iu" or golden.dtype.kind not in "biu":
        plain: Array = np.abs(result - golden)
        return plain
    # A difference of integers wraps around in their own type: 0 - 255 is 1 in uint8.
    larger, smaller = np.maximum(result, golden), np.minimum(result, golden)
    found: Array = larger.astype(np.uint64) - smaller.astype(np.uint64)
    return found


def bounds_of(workload: Workload, dtype: str) -> Bounds:
    """The tolerance for an element type, for the workload's sizes."""
    tolerance = workload.tolerance_for(dtype)
    written = {part: getattr(tolerance, part) for part in ("rtol", "atol", "ulp")}
    texts = any(isinstance(text, str) for text in written.values())
    sizes = sizes_of(workload) if texts else {}
    return Bounds(**{part: float(evaluate(text, sizes)) for part, text in written.items()})


def tolerance_of(workload: Workload, dtype: str) -> tuple[float, float]:
    """The tolerance as a relative and an absolute one, for programs that do not count in ulp."""
    bounds = bounds_of(workload, dtype)
    if not bounds.ulp or np.dtype(dtype).kind != "f":
        return bounds.rtol, bounds.atol
    of = np.finfo(dtype)
    return (
        bounds.rtol + bounds.ulp * float(of.eps),
        bounds.atol + bounds.ulp * float(of.smallest_subnormal),
    )


def unwritten(result: Array) -> Array:
    """Mask of elements that still hold the poison; a computed NaN has other bits."""
    if result.dtype.kind != "f":
        return np.zeros(result.shape, dtype=bool)
    bits = result.view(f"u{result.dtype.itemsize}")
    poisoned: Array = bits == np.iinfo(bits.dtype).max
    return poisoned


def _difference(name: str, result: Array, golden: Array, bad: Array, bounds: Bounds) -> str:
    first, *others = np.argwhere(bad)[:SHOWN].tolist()
    missing = int((unwritten(result) & bad).sum())
    never = f"; {missing} never written" if missing else ""

    def shown(index: list[int]) -> str:
        at = tuple(index)
        return f"{name}{index} is {result[at]:.9g}, golden {golden[at]:.9g}"

    then = "".join(f"; {shown(index)}" for index in others)
    return (
        f"{shown(first)}; "
        f"{int(bad.sum())} of {bad.size} elements are off by more than "
        f"{bounds}{_in_units(result, golden, bad)}{never}{then}"
    )


def _in_units(result: Array, golden: Array, bad: Array) -> str:
    """The largest error in units in the last place, if it can be counted in them."""
    if result.dtype.kind != "f":
        return ""
    with np.errstate(all="ignore"):
        errors = (np.abs(result - golden) / units(golden, result.dtype))[bad]
    errors = errors[np.isfinite(errors)]
    return f", at most by {errors.max():.3g} ulp" if errors.size else ""
