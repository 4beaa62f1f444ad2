"""What rounding its inputs would change of a golden: of ill-conditioned results no kernel is
right within a tolerance that suits the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernloom.config.schema import Workload
from kernloom.measure.fills import Array

SAMPLES = 12
"""Roundings of the inputs: many, so that opposite ones are among them for each element."""
ULP = 4
"""Largest change of an input, in units in the last place."""
WAYS = ("all up", "farthest", "within")
"""How inputs change: the first sample all up, since the rounding errors of a sum may all have the
same sign; the others up or down at random, by just ULP or by less."""
MARGIN = 4
"""Allowed error as a multiple of the largest change of the golden."""

Goldens = Mapping[str, Array]


def rounding_of(
    workload: Workload,
    inputs: Mapping[str, Array],
    exact: Goldens,
    compute: Callable[[Mapping[str, Array]], Goldens],
    seed: int,
) -> dict[str, Array]:
    """What a kernel may be off by because its inputs have an element type: several times the
    change of each golden if the inputs change by a few units in the last place."""
    random = np.random.default_rng([seed, SAMPLES])
    found: dict[str, Array] = {}
    for sample in range(SAMPLES):
        way = WAYS[min(sample, 1 + sample % 2)]
        moved = compute(_moved(inputs, random, way))
        for name, golden in exact.items():
            if golden.dtype.kind != "f":
                continue
            with np.errstate(all="ignore"):
                change = np.abs(moved[name] - golden)
            change = np.where(np.isfinite(change), change, 0)
            found[name] = np.maximum(found.get(name, 0.0), change)
    return {name: MARGIN * change + _tiny(workload, name) for name, change in found.items()}


def _tiny(workload: Workload, name: str) -> float:
    """What a result may be off by near zero, where numbers have few digits."""
    dtype = np.dtype(workload.tensors[name].dtype or workload.dtype)
    return 64 * float(np.finfo(dtype).smallest_subnormal) if dtype.kind == "f" else 0.0


def _moved(inputs: Mapping[str, Array], random: np.random.Generator, way: str) -> dict[str, Array]:
    """The inputs with each element changed in one of WAYS."""
    moved = {}
    for name, array in inputs.items():
        if array.dtype.kind == "f":
            if way == "all up":
                units = np.copysign(float(ULP), array)
            else:
                units = random.uniform(-ULP, ULP, array.shape)
                units = np.copysign(ULP, units) if way == "farthest" else units
            change = units * np.finfo(array.dtype).eps
            with np.errstate(all="ignore"):
                moved[name] = array.astype(np.float64) * (1 + change)
        else:
            moved[name] = array
    return moved
