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
class _Allowance:
    """The allowed error of each element of a golden."""

    golden: Array
    tolerance: tuple[float, float]
    allowed: Array
    room: Array
    """For the errors: new memory for each comparison costs more than computing them."""

    @classmethod
    def of(cls, golden: Array, rtol: float, atol: float) -> _Allowance:
        allowed = np.abs(golden)
        allowed *= rtol
        allowed += atol
        room = np.empty(golden.shape, np.result_type(golden, np.float64))
        return cls(golden, (rtol, atol), allowed, room)


class Allowances:
    """The allowances of the two goldens that each tensor was compared with last: trials of a sweep
    may share them, and use two data sets in turn."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[_Allowance, ...]] = {}

    def largest_share(
        self, name: str, result: Array, golden: Array, rtol: float, atol: float
    ) -> float:
        """The largest error as a share of the tolerance, in as few passes as possible.

        NaN where a closer look is needed: a value that is not finite, in the golden too, makes the
        share NaN or infinite.
        """
        if atol <= 0 or not result.size or result.dtype.kind != "f" or golden.dtype.kind != "f":
            return float("nan")
        with np.errstate(all="ignore"):
            known = self._known(name, golden, (rtol, atol))
            shares = known.room
            np.copyto(shares, result)
            shares -= golden
            shares /= known.allowed
            return max(float(shares.max()), -float(shares.min()))

    def _known(self, name: str, golden: Array, tolerance: tuple[float, float]) -> _Allowance:
        last = self._last.get(name, ())
        for known in last:
            if known.golden is golden and known.tolerance == tolerance:
                return known
        made = _Allowance.of(golden, *tolerance)
        if golden.nbytes <= MAX_GOLDEN_BYTES:
            self._last[name] = (made, *last[:1])
        return made
