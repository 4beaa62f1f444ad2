"""Contents that are drawn stay within what a workload says of its tensors."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kernloom.config.schema import Fill, Tensor, Workload
from kernloom.measure.fills import FILLS, Filling
from kernloom.plan.schedule import TensorSpec
from kernloom.run.fuzzing.draws import Drawing, kinds_of

ELEMENTS = 1001


@pytest.mark.parametrize("seed", range(5))
def test_contents_of_whole_numbers_are_whole_and_in_range(seed: int) -> None:
    tensors = {"x": Tensor(("n",), fill=Fill(kind="integers", low=-8, high=8))}
    workload = Workload("w", {"n": ELEMENTS}, tensors, {}, {})
    drawing = Drawing(workload, unaligned=False)
    for kind in kinds_of(workload, "x"):
        if kind == "fill":
            continue
        fill = Fill(**drawing._fill("x", kind, Random(seed)))
        spec = TensorSpec("x", (ELEMENTS,), "float32")
        filling = Filling(spec, fill, np.random.default_rng(seed), [], "fill")
        values = FILLS[fill.kind](filling)
        assert np.all(values == np.rint(values)), kind
        assert values.min() >= -8 and values.max() <= 8, kind
