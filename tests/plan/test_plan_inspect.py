"""Inspecting a workload: sizes, shapes and what does not fit."""

from __future__ import annotations

import pytest
from workbench import Workbench

from kernloom.base.errors import ConfigError
from kernloom.plan.inspect import check_memory
from kernloom.plan.schedule import TensorSpec


def test_sizes_may_be_expressions_over_others(toy: Workbench) -> None:
    plan = toy.plan("workload=toy", "workload.sizes.n=m // 2 + 3", "workload.sizes.m=10")
    assert plan.outputs["shapes"]["tensors"]["x"] == TensorSpec("x", (8,), "float32")
    assert plan.schedule[0].sizes == {"n": 8}
    assert plan.outputs["shapes"]["flops"] == 16
    assert plan.outputs["shapes"]["bytes"] == 64


def test_element_is_the_bytes_of_the_dtype(toy: Workbench) -> None:
    plan = toy.plan("workload=toy", "workload.dtype=float64", "workload.sizes.n=element * 2")
    assert plan.outputs["shapes"]["tensors"]["x"] == TensorSpec("x", (16,), "float64")


def test_a_step_may_bind_a_size_to_an_expression(toy: Workbench) -> None:
    plan = toy.plan(
        "workload=toy",
        "++workload.steps.first.args.n='m // 2'",
        "++workload.steps.second.args.alpha=0.5",
    )
    assert [record.sizes["n"] for record in plan.schedule] == [64, 64]
    bound = {argument.name: argument.binding for argument in plan.schedule[1].arguments}
    assert bound == {"n": 64, "alpha": 0.5, "x": "t", "y": "y"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["workload.sizes.n=m", "workload.sizes.m=n"],
            ["workload.sizes: these refer to each", "n"],
        ),
        (["workload.sizes.n=n + 1"], ["workload.sizes: these refer to each other: n"]),
        (["workload.sizes.n=0"], ["workload.sizes.n: 0 is not a possible size", "1 to"]),
        (["workload.sizes.n=-4"], ["workload.sizes.n: -4 is not a possible size"]),
        (["workload.sizes.n=m - 200", "workload.sizes.m=7"], ["workload.sizes.n: -193 is not"]),
        (["workload.sizes.n=3 / 2"], ["workload.sizes.n: 1.5 is not a whole number"]),
        (["workload.sizes.n=2.5"], ["workload.sizes.n: expected a whole number or text"]),
        (["workload.sizes.n='1 < 2'"], ["workload.sizes.n: True is not a whole number"]),
        (["workload.sizes.n=2**50"], ["workload.sizes.n", "is not a possible size"]),
        (["workload.sizes.n=9**9**9"], ["workload.sizes.n", "too large"]),
        (["workload.sizes.n=" + " * ".join(["2**250"] * 80)], ["workload.sizes.n", "too large"]),
        (
            ["workload.sizes.n='1 / (m - m)'", "workload.sizes.m=3"],
            ["workload.sizes.n", "division"],
        ),
        (["workload.cost.flops=1 / 0"], ["workload.cost.flops", "division by zero"]),
        (
            ["workload.tensors.x.shape=[n, 2]"],
            ["first.args.x", "'x' has shape [64, 2]", "[64] (n)"],
        ),
        (["workload.tensors.x.shape=[n + 1]"], ["'x' has shape [65]", "'scale' takes [64]"]),
        (["workload.tensors.x.dtype=float64"], ["'x' is float64", "'scale' takes float32"]),
        (["workload.dtype=int32"], ["workload.dtype: kernel 'scale' does not do int32", "float32"]),
        (["++workload.steps.first.args.alpha=beta"], ["unknown scalar 'beta'", "alpha"]),
        (["++workload.steps.first.args.n=q"], ["workload.steps.first.args.n", "unknown name 'q'"]),
        (["++workload.steps.first.args.z=x"], ["'scale' has no argument 'z'"]),
        (["workload.steps.first.args.y=tt"], ["first.args.y: unknown tensor 'tt'", "mean 't'"]),
    ],
)
def test_what_cannot_be_is_named(toy: Workbench, words: list[str], said: list[str]) -> None:
    message = toy.refusal("workload=toy", *words)
    for part in said:
        assert part in message


def test_tensors_that_cannot_fit_are_refused_with_the_largest_one() -> None:
    tensors = {
        "small": TensorSpec("small", (4,), "float32"),
        "huge": TensorSpec("huge", (2**20, 2**10), "float64"),
    }
    check_memory(tensors, 2**40)
    with pytest.raises(ConfigError) as caught:
        check_memory(tensors, 2**34)
    message = str(caught.value)
    assert "the tensors need 8.0 GiB" in message
    assert "16.0 GiB of memory are free" in message
    assert "The largest is huge [1048576, 1024]" in message
