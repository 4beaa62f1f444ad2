"""Inputs and goldens that a program gives for a trial, in place of those of its workload."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from kernloom.base.errors import ConfigError, nearest
from kernloom.config.schema import Workload
from kernloom.measure.data import Array, DataSets, check_finite
from kernloom.plan.inspect import sizes_of, tensors_of

Sizes = Mapping[str, int]
FillTensors = Callable[[dict[str, Array], Sizes, np.random.Generator], None]
"""Changes the inputs, which hold what the workload fills them with."""
ComputeGolden = Callable[[dict[str, Array], Sizes], None]
"""Writes the outputs, which are zero, from the inputs; all in double precision."""
_STREAM = b"arguments"
"""Name of the random stream, beside that of each tensor."""


class OwnDataSets(DataSets):
    """The data of one trial; functions change it in place."""

    def __init__(
        self,
        name: str,
        folders: Sequence[Path],
        fill: FillTensors | None = None,
        golden: ComputeGolden | None = None,
        *,
        skip_golden: bool = False,
    ) -> None:
        """Without a function, the data is that of the workload; with `skip_golden` nothing is
        compared."""
        super().__init__(folders)
        self.name = name
        self._title = name
        self._fill = fill
        self._golden = golden
        self._skip_golden = skip_golden

    def _inputs(self, workload: Workload, seed: int) -> dict[str, Array]:
        filled = super()._inputs(workload, seed)
        if self._fill is None:
            return filled
        tensors = {name: array.copy() for name, array in filled.items()}
        self._fill(tensors, sizes_of(workload), np.random.default_rng([seed, *_STREAM]))
        self._check_known(tensors, filled)
        return {
            name: self._fitting(name, tensors, array.shape, array.dtype)
            for name, array in filled.items()
        }

    def _goldens(self, workload: Workload, seed: int) -> dict[str, Array]:
        if self._skip_golden or self._golden is not None:
            return check_finite(self.goldens_from(workload, self.inputs(workload, seed)))
        return super()._goldens(workload, seed)

    def is_mixable(self, workload: Workload, name: str) -> bool:
        return self._fill is None and super().is_mixable(workload, name)

    def goldens_from(self, workload: Workload, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self._skip_golden:
            return {}
        if self._golden is None:
            return super().goldens_from(workload, inputs)
        specs = tensors_of(workload)
        tensors = {name: array.astype(_exact(array.dtype)) for name, array in inputs.items()}
        outputs = {name: _exact(np.dtype(specs[name].dtype)) for name in workload.golden}
        for name, dtype in outputs.items():
            tensors.setdefault(name, np.zeros(specs[name].shape, dtype))
        known = list(tensors)
        self._golden(tensors, sizes_of(workload))
        self._check_known(tensors, known)
        return {
            name: self._fitting(name, tensors, specs[name].shape, dtype)
            for name, dtype in outputs.items()
        }

    def _fitting(
        self,
        name: str,
        tensors: Mapping[str, Array],
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
    ) -> Array:
        """A tensor as it was left, if it still has its shape and is made of numbers."""
        if name not in tensors:
            raise ConfigError(f"'{name}' is missing", key=self._title)
        try:
            found = np.asarray(tensors[name])
        except ValueError:
            raise ConfigError(f"'{name}' is no array", key=self._title) from None
        if found.shape != shape:
            raise ConfigError(
                f"'{name}' is of shape {list(found.shape)}, but must be {list(shape)}",
                key=self._title,
            )
        if found.dtype.kind not in "biuf":
            raise ConfigError(
                f"'{name}' has elements of type {found.dtype}, but must have real numbers",
                key=self._title,
            )
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(found.astype(dtype))

    def _check_known(self, tensors: Mapping[str, Array], known: Collection[str]) -> None:
        for name in tensors:
            if name not in known:
                raise ConfigError(
                    f"there is no tensor '{name}'",
                    key=self._title,
                    hint=nearest(str(name), known),
                )


def _exact(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    return np.dtype("float64") if dtype.kind == "f" else dtype
