"""Golden results that are too long for an expression, by the name used in a workload's `golden`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Reference: TypeAlias = Callable[
    [Mapping[str, Array], Mapping[str, float], Mapping[str, int]], Array
]
"""Inputs in float64, scalars and sizes, all by name -> the expected output."""


def conv2d(
    inputs: Mapping[str, Array], scalars: Mapping[str, Any], sizes: Mapping[str, int]
) -> Array:
    """One image `x`, channels first, with filters `w`; no padding, stride 1."""
    x, w = inputs["x"], inputs["w"]
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(1, 2))
    result: Array = np.tensordot(w, windows, axes=((1, 2, 3), (0, 3, 4)))
    return result


def stencil5(
    inputs: Mapping[str, Array], scalars: Mapping[str, float], sizes: Mapping[str, int]
) -> Array:
    """Each inner point of `x` from itself and its four neighbours; the boundary is copied."""
    x = inputs["x"]
    result = x.copy()
    if min(x.shape) > 2:
        neighbours = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        result[1:-1, 1:-1] = scalars["center"] * x[1:-1, 1:-1] + scalars["side"] * neighbours
    return result


def paged_attention(
    inputs: Mapping[str, Array], scalars: Mapping[str, float], sizes: Mapping[str, int]
) -> Array:
    """Attention of the queries `q` of each sequence to the pages that its line of `table` names."""
    q, keys, values = inputs["q"], inputs["keys"], inputs["values"]
    pages = inputs["table"].astype(np.int64) % sizes["pages"]
    batch, _, dim = q.shape
    k = keys[pages].reshape(batch, -1, dim)
    v = values[pages].reshape(batch, -1, dim)
    scores = scalars["scale"] * (q @ k.transpose(0, 2, 1))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = weights @ v / weights.sum(axis=-1, keepdims=True)
    return result


REFERENCES: dict[str, Reference] = {
    "conv2d": conv2d,
    "paged_attention": paged_attention,
    "stencil5": stencil5,
}
