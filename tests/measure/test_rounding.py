"""What rounding its inputs may change of a result."""

from __future__ import annotations

from functools import partial

import numpy as np

from kernloom.config.schema import Tensor, Workload
from kernloom.measure.data import goldens_of
from kernloom.measure.rounding import rounding_of


def test_outputs_of_every_element_type_can_be_rounded() -> None:
    tensors = {"x": Tensor((2,), "float32"), "y": Tensor((2,), "float64"), "m": Tensor((2,))}
    golden = {"y": "x - 1", "m": "x > 1"}
    workload = Workload("w", {}, tensors, {}, golden, dtype="uint8")
    inputs = {"x": np.array([1, 4], np.float32)}
    exact = goldens_of(workload, {}, inputs, [])
    rounding = rounding_of(
        workload, inputs, exact, partial(goldens_of, workload, {}, folders=[]), 0
    )
    assert list(rounding) == ["y"]
    assert 0 < rounding["y"][0] < rounding["y"][1] < 1e-4


def test_errors_of_a_sum_may_have_the_same_sign() -> None:
    n = 16384
    tensors = {"x": Tensor((n,), "float32"), "y": Tensor((1,), "float32")}
    workload = Workload("w", {}, tensors, {}, {"y": "reshape(sum(x), (1,))"}, dtype="float32")
    inputs = {"x": np.linspace(-1, 1, n).astype(np.float32)}
    exact = goldens_of(workload, {}, inputs, [])
    one_by_one = np.cumsum(inputs["x"], dtype=np.float32)[-1]
    rounding = rounding_of(
        workload, inputs, exact, partial(goldens_of, workload, {}, folders=[]), 0
    )
    assert abs(one_by_one - exact["y"][0]) < rounding["y"][0]
