"""The cost models always answer, within the constraints and with what suits the machine."""

from __future__ import annotations

import math

import pytest
from cases import CASES
from harness import V2, V3, V4, Machine, flat, kernel_names, load_kernel, modelled

NEON = Machine("neon", 16, 32, ())
SCALAR = Machine("scalar", 4, 16, (), l1=0, l2=0, l3=0, cores=1)


@pytest.mark.parametrize("machine", [V2, V3, V4, NEON], ids=lambda machine: machine.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", kernel_names())
def test_the_model_takes_whole_vectors_on_one_thread(
    name: str, dtype: str, machine: Machine
) -> None:
    kernel = load_kernel(name)
    for sizes in (CASES[name].typical, *CASES[name].sizes):
        chosen = modelled(kernel, sizes, machine, dtype)
        assert chosen, sizes
        assert chosen["vectorize"]["lanes"] == machine.names(dtype)["lanes_max"]
        assert chosen["parallelize"]["threads"] == 1


@pytest.mark.parametrize("name", kernel_names())
def test_the_model_answers_for_the_smallest_machine(name: str) -> None:
    assert modelled(load_kernel(name), CASES[name].typical, SCALAR, "float32")


@pytest.mark.parametrize("name", kernel_names())
def test_the_model_answers_whichever_transform_is_left_out(name: str) -> None:
    kernel = load_kernel(name)
    for group in kernel.tunables.values():
        off = {tunable: item.off for tunable, item in group.items()}
        assert modelled(kernel, CASES[name].typical, V4, "float32", **off), off


@pytest.mark.parametrize("name", kernel_names())
def test_a_space_can_be_asked_as_a_whole(name: str) -> None:
    assert math.prod(len(values) for _, values in flat(load_kernel(name)).values()) <= 30_000


@pytest.mark.parametrize(
    ("machine", "wanted"), [(V3, (6, 2)), (V4, (8, 3)), (NEON, (8, 3))], ids=lambda item: str(item)
)
def test_a_product_fills_the_registers(machine: Machine, wanted: tuple[int, int]) -> None:
    chosen = modelled(load_kernel("matmul"), {"M": 512, "N": 768, "K": 512}, machine, "float32")
    assert chosen
    assert (chosen["tile"]["mr"], chosen["tile"]["nv"]) == wanted


def test_a_product_is_packed_only_where_that_pays() -> None:
    kernel = load_kernel("matmul")
    packed = {
        size: modelled(kernel, {"M": size, "N": 1024, "K": 1024}, V4, "float32")["pack"]["b"]
        for size in (4, 1024)
    }
    assert packed == {4: False, 1024: True}
