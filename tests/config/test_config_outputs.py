"""Checks that need several keys of an experiment together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kernloom.base.errors import ConfigError
from kernloom.config.compose import Composer
from kernloom.config.schema import Experiment
from kernloom.config.validate import experiment
from parsed import points_of

Project = Callable[[Mapping[str, str]], Composer]

KERNEL = """\
name: split
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: ACCESS, shape: [n]}
  z: {kind: tensor, access: write, shape: [n]}
sources:
  host: {file: split.c, function: split}
"""
WORKLOAD = """\
defaults: [{/kernel@kernels.split: split}, _self_]
name: split
sizes: {n: 100}
tensors: {x: {shape: [n]}, y: {shape: [n]}, z: {shape: [n]}, u: {shape: [n]}, v: {shape: [n]}}
steps: STEPS
golden: GOLDEN
"""
ONE = "{one: {kernel: split}}"
CHAIN = "{one: {kernel: split}, two: {kernel: split, args: {x: z, y: u, z: v}}}"
AGAIN = "{one: {kernel: split}, two: {kernel: split, args: {x: z, y: u, z: y}}}"


@pytest.fixture
def split(project: Project) -> Callable[..., Experiment]:
    """A workload whose kernel has two outputs, y and z."""

    def read(steps: str, golden: str, access: str = "write") -> Experiment:
        composer = project(
            {
                "kernel/split.yaml": KERNEL.replace("ACCESS", access),
                "workload/split.yaml": WORKLOAD.replace("STEPS", steps).replace("GOLDEN", golden),
            }
        )
        words = ["workload=split", "arch=x86_64_v2"]
        (point,) = points_of(composer, words, multirun=False)
        data: dict[str, Any] = point.data
        return experiment(data)

    return read


@pytest.mark.parametrize(
    ("steps", "golden", "access", "missing", "step"),
    [
        (ONE, "{y: 2 * x}", "write", "z", "one"),
        (ONE, "{z: 2 * x}", "update", "y", "one"),
        (CHAIN, "{y: x, u: x}", "write", "v", "two"),
        (CHAIN, "{u: x, v: x}", "write", "y", "one"),
        (AGAIN, "{u: x}", "write", "y", "two"),
    ],
)
def test_an_output_without_a_golden_is_refused_by_name(
    split: Callable[..., Experiment],
    steps: str,
    golden: str,
    access: str,
    missing: str,
    step: str,
) -> None:
    with pytest.raises(ConfigError, match=f"^workload.golden: '{missing}' has no golden") as caught:
        split(steps, golden, access)
    assert f"step '{step}' writes it" in caught.value.message
    assert f"workload.golden.{missing}" in caught.value.hint


@pytest.mark.parametrize(
    ("steps", "golden"),
    [
        (ONE, "{y: 2 * x, z: x}"),
        (CHAIN, "{y: x, u: x, v: x}"),
        (CHAIN, "{y: x, u: x, v: x, z: x}"),
        (AGAIN, "{u: x, y: x}"),
    ],
)
def test_a_tensor_that_a_later_step_reads_needs_no_golden(
    split: Callable[..., Experiment], steps: str, golden: str
) -> None:
    assert split(steps, golden).workload.name == "split"
