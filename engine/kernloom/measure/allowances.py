"""How far the elements of a result may be from their golden, worked out once for each golden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MAX_GOLDEN_BYTES = 8 * 2**20
"""The largest golden whose allowance is kept."""


@dataclass(frozen=True)
class Bounds:
    """A tolerance in numbers: |result - golden| <= atol + rtol * |golden| + ulp * spacing."""

    rtol: float
    atol: float = 0.0
    ulp: float = 0.0

    def allowed(self, golden: Array, dtype: np.dtype[Any]) -> Array:
        """The allowed error of each element."""
        allowed: Array = np.abs(golden).astype(np.result_type(golden, np.float64), copy=False)
        allowed = allowed * self.rtol
        allowed += self.atol
        if self.ulp and dtype.kind == "f":
            allowed += self.ulp * units(golden, dtype)
        return allowed

    @property
    def exact(self) -> bool:
        return not (self.rtol or self.atol or self.ulp)

    def __str__(self) -> str:
        ulp = f" + {self.ulp:.3g} ulp" if self.ulp else ""
        return f"{self.atol:.3g} + {self.rtol:.3g}*|golden|{ulp}"


def units(golden: Array, dtype: np.dtype[Any]) -> Array:
    """The unit in the last place of each element of a golden as a number of the result's type."""
    with np.errstate(all="ignore"):
        spacing: Array = np.spacing(np.abs(golden).astype(dtype)).astype(np.float64)
        return spacing


@dataclass(frozen=True)
class _Allowance:
    """The allowed error of each element of a golden."""

    golden: Array
    bounds: Bounds
    allowed: Array
    room: Array
    """For the errors: new memory for each comparison costs more than computing them."""

    @classmethod
    def of(cls, golden: Array, bounds: Bounds, dtype: np.dtype[Any]) -> _Allowance:
        room = np.empty(golden.shape, np.result_type(golden, np.float64))
        return cls(golden, bounds, bounds.allowed(golden, dtype), room)


class Allowances:
    """The allowances of the two goldens that each tensor was compared with last: trials of a sweep
    may share them, and use two data sets in turn."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[_Allowance, ...]] = {}

    def largest_share(self, name: str, result: Array, golden: Array, bounds: Bounds) -> float:
        """The largest error as a share of the tolerance, in as few passes as possible.

        NaN where a closer look is needed: a value that is not finite, in the golden too, makes the
        share NaN or infinite.
        """
        positive = bounds.atol > 0 or bounds.ulp > 0
        if not positive or not result.size or {result.dtype.kind, golden.dtype.kind} != {"f"}:
            return float("nan")
        with np.errstate(all="ignore"):
            known = self._known(name, golden, bounds, result.dtype)
            shares = known.room
            np.copyto(shares, result)
            shares -= golden
            shares /= known.allowed
            return max(float(shares.max()), -float(shares.min()))

    def _known(self, name: str, golden: Array, bounds: Bounds, dtype: np.dtype[Any]) -> _Allowance:
        last = self._last.get(name, ())
        for known in last:
            if known.golden is golden and known.bounds == bounds:
                return known
        made = _Allowance.of(golden, bounds, dtype)
        if golden.nbytes <= MAX_GOLDEN_BYTES:
            self._last[name] = (made, *last[:1])
        return made
