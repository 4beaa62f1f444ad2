"""Whether the results of a draw are right: within the tolerance, or within what rounding the
inputs would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kernloom.base.errors import ConfigError, DeviceError
from kernloom.config.schema import Workload
from kernloom.device.contract import LaunchSettings
from kernloom.measure.bench import Bench, Setup
from kernloom.measure.data import Array, DataSets, goldens_of
from kernloom.measure.verify import bounds_of, compare, same_bytes
from kernloom.plan.inspect import sizes_of

SAMPLES = 12
"""Random roundings of the inputs: many, so that opposite ones are among them for each element."""
ULP = 4
"""Largest change of an input, in units in the last place."""
WAYS = ("all up", "farthest", "within")
"""How inputs change: the first sample all up, since the rounding errors of a sum may all have the
same sign; the others up or down at random, by just ULP or by less."""
MARGIN = 4
"""Allowed error as a multiple of the largest change of the golden."""


class FuzzData(DataSets):
    """Inputs and goldens of draws, in which nothing needs to be finite."""

    name = "fuzz"

    @property
    def folders(self) -> Sequence[Path]:
        return self._folders

    def _checked_regions(self, masks: dict[str, Array]) -> dict[str, Array]:
        return masks

    def _checked(self, goldens: dict[str, Array]) -> dict[str, Array]:
        return goldens


def judge(bench: Bench, setup: Setup, data: FuzzData) -> None:
    """One launch; raises DeviceError if a result is wrong."""
    workload, seed = bench.experiment.workload, bench.experiment.seed
    goldens = data.goldens(workload, seed)
    regions = data.regions(workload, seed)
    only_read = [name for name in setup.inputs if name not in setup.written]
    settings = LaunchSettings(inner=1, samples=1)
    _, found = setup.launch_and_view(settings, [*goldens, *only_read])
    rounding: dict[str, Array] | None = None
    for name, golden in goldens.items():
        try:
            compare(name, found[name], golden, workload, region=regions.get(name))
        except DeviceError:
            bounds = workload.derive(bounds_of, found[name].dtype.name)
            exact = not (bounds.rtol or bounds.atol or bounds.ulp)
            if exact or golden.dtype.kind != "f" or found[name].dtype.kind != "f":
                raise
            if rounding is None:
                rounding = _rounding(workload, seed, data)
            limit = float(np.finfo(found[name].dtype).max) / 2
            with np.errstate(all="ignore"):
                held = ~(np.isfinite(golden) & (np.abs(golden) > limit))
            region = held & regions[name] if name in regions else held
            compare(name, found[name], golden, workload, region=region, rounding=rounding[name])
    for name in only_read:
        if not same_bytes(found[name], setup.inputs[name]):
            raise DeviceError(f"{name} was changed, but no kernel may write it", status="wrong")


def _rounding(workload: Workload, seed: int, data: FuzzData) -> dict[str, Array]:
    """What a kernel may be off by because its inputs have an element type: several times the
    change of each golden if the inputs change by a few units in the last place."""
    inputs, exact = data.inputs(workload, seed), data.goldens(workload, seed)
    random = np.random.default_rng([seed, SAMPLES])
    found: dict[str, Array] = {}
    for sample in range(SAMPLES):
        way = WAYS[min(sample, 1 + sample % 2)]
        moved = _goldens(workload, _moved(inputs, random, way), data)
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


def _goldens(workload: Workload, inputs: Mapping[str, Array], data: FuzzData) -> dict[str, Array]:
    try:
        with np.errstate(all="ignore"):
            return goldens_of(workload, sizes_of(workload), inputs, data.folders)
    except ConfigError as error:
        raise DeviceError(str(error), status="refused") from None
