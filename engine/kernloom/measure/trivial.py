"""Tolerances that would also accept an output without any work: zeros, an input, the mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kernloom.measure.allowances import Bounds, units
from kernloom.measure.fills import Array

SAME_ULP = 4
"""An output that differs from the golden by no more is right: no tolerance could refuse it."""


def too_wide(
    goldens: Mapping[str, Array],
    inputs: Mapping[str, Array],
    regions: Mapping[str, Array],
    dtypes: Mapping[str, str],
    bounds: Mapping[str, Bounds],
) -> tuple[str, ...]:
    """A warning for each output whose tolerance accepts a trivial output that is not right."""
    warnings = []
    for name, golden in goldens.items():
        region = regions.get(name)
        counted = golden if region is None else golden[region]
        dtype = np.dtype(dtypes[name])
        counted = np.atleast_1d(counted)
        for trivial, values in _trivial_outputs(golden, inputs, dtype):
            given = values if region is None or values.ndim == 0 else values[region]
            if _accepted(counted, given, bounds[name], dtype):
                warnings.append(
                    f"the tolerance of '{name}' is too wide: {bounds[name]} would also accept "
                    f"{trivial}"
                )
                break
    return tuple(warnings)


def _trivial_outputs(
    golden: Array, inputs: Mapping[str, Array], dtype: np.dtype[np.generic]
) -> Iterator[tuple[str, Array]]:
    yield "zeros", np.asarray(0.0)
    for name, array in inputs.items():
        if array.shape == golden.shape:
            yield f"the input '{name}' unchanged", array
    with np.errstate(all="ignore"):
        mean = np.asarray(golden.mean(dtype=np.float64))
    yield "the mean everywhere", np.rint(mean) if dtype.kind in "iu" else mean


def _accepted(golden: Array, trivial: Array, bounds: Bounds, dtype: np.dtype[np.generic]) -> bool:
    """Whether a trivial output is within the tolerance although it is wrong."""
    if not golden.size or not _within(golden[:1], trivial, bounds, dtype):
        return False
    if not _within(golden, trivial, bounds, dtype):
        return False
    with np.errstate(all="ignore"):
        error = np.abs(trivial - golden)
        wrong = error > SAME_ULP * units(golden, dtype) if dtype.kind == "f" else error > 0
    return bool(wrong.any())


def _within(golden: Array, trivial: Array, bounds: Bounds, dtype: np.dtype[np.generic]) -> bool:
    part = trivial if trivial.ndim == 0 else trivial[: len(golden)]
    with np.errstate(all="ignore"):
        error = np.abs(part.astype(np.float64) - golden)
        return bool((error <= bounds.allowed(golden, dtype)).all())
