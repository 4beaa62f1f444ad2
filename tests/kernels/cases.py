"""What kernels are tested with, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernloom.base.expressions import evaluate
from kernloom.measure.references import REFERENCES

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """A kernel's golden result and the sizes it is tried with."""

    golden: str
    sizes: tuple[Sizes, ...]
    typical: Sizes
    """What the model is asked for when a variant is chosen."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-5

    def expected(self, values: Mapping[str, np.ndarray], sizes: Sizes) -> np.ndarray:
        inputs = {name: value.astype(np.float64) for name, value in values.items()}
        if self.golden in REFERENCES:
            return REFERENCES[self.golden](inputs, self.scalars, sizes)
        return np.asarray(evaluate(self.golden, {**inputs, **self.scalars}))

    def close(self, got: np.ndarray, wanted: np.ndarray) -> bool:
        shrink = 1.0 if got.dtype == np.float32 else 1e-7
        return np.allclose(got, wanted, rtol=self.rtol * shrink, atol=self.atol * shrink)


def _vectors(*lengths: int) -> tuple[Sizes, ...]:
    return tuple({"n": n} for n in lengths)


def _grids(*shapes: tuple[int, int]) -> tuple[Sizes, ...]:
    return tuple({"rows": rows, "cols": cols} for rows, cols in shapes)


def _products(*shapes: tuple[int, int, int]) -> tuple[Sizes, ...]:
    return tuple({"M": m, "N": n, "K": k} for m, n, k in shapes)


def _images(*shapes: tuple[int, int, int, int, int, int]) -> tuple[Sizes, ...]:
    names = ("C", "H", "W", "F", "KH", "KW")
    return tuple(dict(zip(names, shape, strict=True)) for shape in shapes)


_LENGTHS = _vectors(1, 2, 7, 16, 31, 64, 127, 128, 1009, 4096)
_GRIDS = _grids((1, 1), (1, 7), (7, 1), (2, 2), (3, 3), (5, 17), (16, 16), (13, 67), (37, 131))
_GRIDS += _grids((64, 128), (97, 33), (3, 300))
_ACTIVATED = "maximum(x + bias, 0)"

CASES: dict[str, Case] = {
    "axpy": Case("alpha * x + y", _LENGTHS, {"n": 4096}, {"alpha": 1.5}),
    "sum": Case("sum(x, axis=0, keepdims=True)", (*_LENGTHS, {"n": 40009}), {"n": 4096}, rtol=1e-4),
    "gelu": Case(
        "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x**3)))", _LENGTHS, {"n": 4096}
    ),
    "bias_relu": Case(_ACTIVATED, _GRIDS, {"rows": 64, "cols": 256}),
    "softmax": Case(
        "exp(x - amax(x, axis=1, keepdims=True))"
        "/ sum(exp(x - amax(x, axis=1, keepdims=True)), axis=1, keepdims=True)",
        _GRIDS,
        {"rows": 64, "cols": 256},
    ),
    "layernorm": Case(
        "(x - mean(x, axis=1, keepdims=True)) / sqrt(var(x, axis=1, keepdims=True) + eps)"
        " * gamma + beta",
        _GRIDS,
        {"rows": 64, "cols": 256},
        {"eps": 1e-3},
        rtol=1e-4,
        atol=1e-4,
    ),
    "transpose": Case("x.T", _GRIDS, {"rows": 256, "cols": 256}, rtol=0, atol=0),
    "stencil5": Case(
        "stencil5", _GRIDS, {"rows": 256, "cols": 256}, {"center": 0.5, "side": 0.125}
    ),
    "conv2d": Case(
        "conv2d",
        _images(
            (1, 1, 1, 1, 1, 1),
            (1, 3, 3, 1, 3, 3),
            (2, 5, 7, 3, 3, 2),
            (3, 9, 19, 13, 3, 3),
            (5, 11, 41, 31, 5, 2),
            (4, 6, 70, 17, 1, 1),
            (1, 7, 135, 5, 2, 7),
        ),
        {"C": 16, "H": 34, "W": 66, "F": 32, "KH": 3, "KW": 3},
        atol=1e-4,
    ),
    "matmul": Case(
        "A @ B",
        _products(
            (1, 1, 1),
            (1, 7, 5),
            (7, 1, 3),
            (5, 3, 300),
            (6, 64, 4),
            (14, 48, 17),
            (13, 31, 67),
            (61, 107, 83),
            (3, 600, 7),
            (29, 130, 530),
            (2, 1100, 130),
        ),
        {"M": 256, "N": 256, "K": 256},
        atol=1e-4,
    ),
}


def inputs(kernel: Any, sizes: Sizes, dtype: str) -> dict[str, np.ndarray]:
    """Seeded tensors for a kernel's arguments; outputs are NaN."""
    random = np.random.default_rng(sum(sizes.values()))
    made = {}
    for name, argument in kernel.arguments.items():
        if argument.kind == "tensor":
            shape = tuple(evaluate(size, sizes) for size in argument.shape)
            empty = argument.access == "write"
            values = np.full(shape, np.nan) if empty else random.uniform(-2, 2, shape)
            made[name] = values.astype(dtype)
    return made
