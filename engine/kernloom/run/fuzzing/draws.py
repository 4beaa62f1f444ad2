"""Draws: one seed, sizes, contents and alignments of a workload, from what it allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.config.overrides import Override
from kernloom.config.schema import Fill, SizeRange, Workload
from kernloom.plan.inspect import inputs_of
from kernloom.plan.schedule import ELEMENT

HIGHEST = 1 << 16
"""Largest size that is drawn where the workload declares none."""
BYTES, MANY_BYTES = 128 << 10, 1 << 20
"""Limit of the tensors of most draws, and of one draw in ten."""
WORK = 4_000_000
"""Limit of a draw's operations: emulators execute some ten millions a second."""
LINE = 64
"""Alignment of a tensor at offset 0."""
MAX_SEED = 2**31 - 1
_ATTEMPTS = 200
"""Attempts to fit the sizes of a draw into its limits."""
_HUGE = {"float32": 1e37, "float64": 1e307}
_TINY = {"float32": 1e-30, "float64": 1e-290}
_DENORMAL = {"float32": 1e-39, "float64": 1e-309}


@dataclass(frozen=True)
class Draw:
    """One point to verify."""

    seed: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Tensor -> kind of contents, for tensors without their own fill."""
    fills: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    """Tensor -> bytes between its beginning and the cache line before."""

    def overrides(self) -> list[Override]:
        """The draw as overrides of its experiment; offsets have none."""
        values: dict[str, Any] = {"seed": self.seed}
        values |= {f"workload.sizes.{name}": size for name, size in self.sizes.items()}
        values |= {f"workload.tensors.{name}.fill": dict(f) for name, f in self.fills.items()}
        return [Override.of(key, value, group=False) for key, value in values.items()]

    def __str__(self) -> str:
        parts = [f"seed={self.seed}", *(f"{name}={size}" for name, size in self.sizes.items())]
        parts += [f"{name}: {kind}" for name, kind in self.kinds.items()]
        parts += [f"{name} at byte {offset}" for name, offset in self.offsets.items()]
        return ", ".join(parts)


class Drawing:
    """Draws from what a workload allows."""

    def __init__(self, workload: Workload, *, unaligned: bool) -> None:
        """`unaligned`: whether the device can place tensors at any multiple of an element."""
        self._workload = workload
        self.sizes = {name: size for name, size in workload.sizes.items() if isinstance(size, int)}
        self._kinds = {name: kinds_of(workload, name) for name in inputs_of(workload)}
        self._tensors = list(dict.fromkeys(name for name, _ in workload.accesses()))
        self._dtypes = {
            name: tensor.dtype or workload.dtype for name, tensor in workload.tensors.items()
        }
        self._alignment = alignment_of(workload) if unaligned else LINE

    @property
    def varies(self) -> bool:
        """Whether a size can have several values."""
        ranges = (self._range(name) for name in self.sizes)
        return any(low + limits.multiple <= high for low, high, limits in ranges)

    def draw(self, random: Random) -> Draw:
        sizes = self._drawn_sizes(random)
        kinds: dict[str, str] = {}
        if random.random() < 0.6:
            some = [name for name in self._kinds if random.random() < 0.5]
            for name in some or list(self._kinds)[:1]:
                kinds[name] = random.choice(self._kinds[name])
        kinds = {name: kind for name, kind in kinds.items() if kind != "fill"}
        fills = {name: self._fill(name, kind, random) for name, kind in kinds.items()}
        offsets = {}
        if self._alignment < LINE and random.random() < 0.5:
            for name in self._tensors:
                step = max(self._alignment, ELEMENT[self._dtypes[name]])
                if offset := random.randrange(0, LINE, step):
                    offsets[name] = offset
        return Draw(random.randint(0, MAX_SEED), sizes, kinds, fills, offsets)

    def _range(self, name: str) -> tuple[int, int, SizeRange]:
        limits = self._workload.fuzz.sizes.get(name, SizeRange())
        low = -(-limits.low // limits.multiple) * limits.multiple
        high = max(HIGHEST, low) if limits.high is None else limits.high
        return low, high // limits.multiple * limits.multiple, limits

    def _drawn_sizes(self, random: Random) -> dict[str, int]:
        most = MANY_BYTES if random.random() < 0.1 else BYTES
        sizes = {name: self._size(name, random) for name in self.sizes}
        for _ in range(_ATTEMPTS):
            if self._fits(sizes, most):
                break
            # The larger a size, the more likely it is to shrink.
            names = list(sizes)
            weights = [math.log2(max(sizes[name], 1)) + 0.01 for name in names]
            name = random.choices(names, weights)[0]
            low, _, limits = self._range(name)
            half = sizes[name] // 2 + random.randint(0, 1)
            sizes[name] = max(low, half // limits.multiple * limits.multiple)
        return sizes

    def _size(self, name: str, random: Random) -> int:
        low, high, limits = self._range(name)
        if low >= high or random.random() < 0.12:
            return low
        around = math.exp(random.uniform(math.log(max(low, 1)), math.log(high)))
        value = round(around)
        choice = random.random()
        if choice < 0.35:
            value = 2 ** round(math.log2(around)) + random.choice((-1, 0, 1))
        elif choice < 0.6:
            value = _prime_near(value)
        elif choice < 0.7:
            value = self.sizes[name] + random.choice((-1, 0, 1))
        return min(max(value // limits.multiple * limits.multiple, low), high)

    def _fits(self, sizes: Mapping[str, int], most: int) -> bool:
        known = _all_sizes(self._workload, sizes)
        try:
            nbytes = sum(
                math.prod(max(int(evaluate(extent, known)), 1) for extent in tensor.shape)
                * ELEMENT[self._dtypes[name]]
                for name, tensor in self._workload.tensors.items()
            )
            flops = evaluate(self._workload.cost.flops, {**known, "element": 4})
        except ConfigError:
            return True  # planning refuses it with a reason
        return nbytes <= most and flops <= WORK

    def _fill(self, name: str, kind: str, random: Random) -> dict[str, Any]:
        """A fill of some kind, within the range of the tensor's own fill."""
        low, high, whole = range_of(self._workload, name)
        dtype = self._dtypes[name]
        uniform = "integers" if whole else "uniform"
        if kind == "uniform":
            return {"kind": uniform, "low": low, "high": high}
        if kind == "constant":
            value = random.randint(int(low), int(high)) if whole else random.uniform(low, high)
            return {"kind": "constant", "value": float(value)}
        if kind == "zeros":
            return {"kind": "constant", "value": 0.0}
        if kind == "sorted":
            pattern = "steps" if whole else "ramp"
            return {"kind": "pattern", "pattern": pattern, "low": low, "high": high}
        if kind == "extremes":
            pattern = random.choice(("alternating", "checkerboard"))
            return {"kind": "pattern", "pattern": pattern, "low": low, "high": high}
        if kind in ("nan", "inf"):
            value = float(kind) * (random.choice((-1, 1)) if kind == "inf" else 1)
            return {"kind": "sprinkled", "value": value, "low": low, "high": high}
        scale = {"tiny": _TINY, "denormal": _DENORMAL, "huge": _HUGE}[kind].get(dtype, 1.0)
        down, up = float(np.sign(min(low, 0.0))), float(np.sign(max(high, 0.0)))
        return {"kind": "uniform", "low": down * scale, "high": up * scale}


def kinds_of(workload: Workload, name: str) -> tuple[str, ...]:
    """The kinds of contents that a tensor may have: declared, or within the range of its fill."""
    if declared := workload.fuzz.values.get(name):
        return declared
    fill = workload.tensors[name].fill
    if fill.kind not in ("uniform", "normal", "integers"):
        return ("fill",)
    low, high, whole = range_of(workload, name)
    kinds = ["fill", "constant", "sorted", "extremes"]
    if fill.kind == "normal":
        kinds.append("uniform")
    if low <= 0 <= high:
        kinds += ["zeros"] if whole else ["zeros", "tiny", "denormal"]
    return tuple(kinds)


def range_of(workload: Workload, name: str) -> tuple[float, float, bool]:
    """Least and largest value of a tensor's fill, and whether all are whole numbers."""
    tensor = workload.tensors[name]
    fill, own = tensor.fill, Fill()
    whole = np.dtype(tensor.dtype or workload.dtype).kind in "iu" or fill.kind == "integers"
    if fill.kind == "normal":
        return fill.mean - 3 * fill.std, fill.mean + 3 * fill.std, whole
    if whole and (fill.low, fill.high) == (own.low, own.high):
        least = 0 if (tensor.dtype or workload.dtype).startswith("u") else -100
        return least, 100, whole
    return fill.low, fill.high, whole


def alignment_of(workload: Workload) -> int:
    """Bytes that every tensor's beginning is a multiple of."""
    key = "workload.fuzz.alignment"
    value = evaluate(workload.fuzz.alignment, {"element": ELEMENT[workload.dtype]}, key=key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LINE:
        raise ConfigError(f"{value!r} is no alignment", key=key, hint=f"Allowed: 1 to {LINE}.")
    if value & (value - 1):
        raise ConfigError(f"{value} is no power of two", key=key)
    return value


def _all_sizes(workload: Workload, sizes: Mapping[str, int]) -> dict[str, Any]:
    known: dict[str, Any] = {**workload.sizes, **sizes, "element": ELEMENT[workload.dtype]}
    # A size may be an expression over the sizes before it.
    for _ in workload.sizes:
        for name, value in known.items():
            if isinstance(value, str):
                try:
                    known[name] = evaluate(value, {n: v for n, v in known.items() if n != name})
                except ConfigError:
                    continue
    return known


def _prime_near(value: int) -> int:
    while value > 2 and any(value % part == 0 for part in range(2, math.isqrt(value) + 1)):
        value -= 1
    return max(value, 1)
