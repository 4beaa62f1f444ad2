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
from kernloom.measure.rounding import rounding_of
from kernloom.measure.verify import bounds_of, compare, same_bytes
from kernloom.plan.inspect import sizes_of


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
            if bounds.exact or golden.dtype.kind != "f" or found[name].dtype.kind != "f":
                raise
            if rounding is None:
                inputs = data.inputs(workload, seed)
                rounding = rounding_of(
                    workload, inputs, goldens, lambda moved: _goldens(workload, moved, data), seed
                )
            limit = float(np.finfo(found[name].dtype).max) / 2
            with np.errstate(all="ignore"):
                held = ~(np.isfinite(golden) & (np.abs(golden) > limit))
            region = held & regions[name] if name in regions else held
            compare(name, found[name], golden, workload, region=region, rounding=rounding[name])
    for name in only_read:
        if not same_bytes(found[name], setup.inputs[name]):
            raise DeviceError(f"{name} was changed, but no kernel may write it", status="wrong")


def _goldens(workload: Workload, inputs: Mapping[str, Array], data: FuzzData) -> dict[str, Array]:
    try:
        with np.errstate(all="ignore"):
            return goldens_of(workload, sizes_of(workload), inputs, data.folders)
    except ConfigError as error:
        raise DeviceError(str(error), status="refused") from None
