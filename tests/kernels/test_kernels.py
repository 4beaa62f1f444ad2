"""Every kernel is right for any size, dtype and tunable, and touches nothing but its tensors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, Sizes, inputs
from harness import (
    Epilogue,
    Fenced,
    Variant,
    best_machine,
    call,
    flat,
    kernel_names,
    load_kernel,
    modelled,
    off_params,
    survives,
)

BEST = best_machine()


def arguments_for(
    variant: Variant, sizes: Sizes, tensors: dict[str, np.ndarray]
) -> list[np.generic]:
    scalars = CASES[variant.kernel.name].scalars
    values: list[np.generic] = []
    for argument in variant.arguments():
        name, kind = argument["name"], argument["kind"]
        if kind == "size":
            values.append(np.int64(sizes[name]))
        elif kind == "scalar":
            values.append(np.dtype(variant.dtype).type(scalars[name]))
        else:
            values.append(tensors[name])  # type: ignore[arg-type]
    return values


def shifted(array: np.ndarray, elements: int) -> np.ndarray:
    """A copy `elements` behind a 64-byte boundary, between NaN that any stray read would spread."""
    raw = np.full(array.nbytes + 4 * 64, 0xFF, dtype=np.uint8)  # As floats these are NaN.
    start = -raw.ctypes.data % 64 + 64
    begin = start + elements * array.itemsize
    view = raw[begin : begin + array.nbytes].view(array.dtype)
    view[:] = array.ravel()
    return view.reshape(array.shape)


def surroundings_intact(array: np.ndarray) -> bool:
    raw = array
    while isinstance(raw.base, np.ndarray):
        raw = raw.base
    begin = array.ctypes.data - raw.ctypes.data
    return bool((raw[:begin] == 0xFF).all() and (raw[begin + array.nbytes :] == 0xFF).all())


def check(variant: Variant, folder: Path) -> None:
    library = variant.build(folder)
    kernel, case = variant.kernel, CASES[variant.kernel.name]
    output = next(name for name, a in kernel.arguments.items() if a.access != "read")
    for sizes in case.sizes:
        given = inputs(kernel, sizes, variant.dtype)
        wanted = case.expected(given, sizes)
        for offset in (0, 1):
            tensors = {name: shifted(value, offset) for name, value in given.items()}
            call(library, arguments_for(variant, sizes, tensors))
            where = f"{sizes}, {variant.params}, tensors {offset} off their boundary"
            assert case.close(tensors[output], wanted), where
            assert all(surroundings_intact(tensor) for tensor in tensors.values()), where


def tunable_values() -> Iterator[tuple[str, str, object]]:
    for name in kernel_names():
        for tunable, (_, values) in flat(load_kernel(name)).items():
            if tunable != "into_producer":  # Decided in the plan: it never reaches this template.
                yield from ((name, tunable, value) for value in values)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", kernel_names())
def test_without_any_transform_a_kernel_is_right(name: str, dtype: str, built: Path) -> None:
    kernel = load_kernel(name)
    check(Variant(kernel, dtype, off_params(kernel), BEST), built)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", kernel_names())
def test_as_its_model_chooses_a_kernel_is_right(name: str, dtype: str, built: Path) -> None:
    kernel = load_kernel(name)
    check(Variant(kernel, dtype, modelled(kernel, CASES[name].typical, BEST, dtype), BEST), built)


@pytest.mark.parametrize(("name", "tunable", "value"), list(tunable_values()))
def test_with_each_value_of_each_tunable_a_kernel_is_right(
    name: str, tunable: str, value: object, built: Path
) -> None:
    kernel = load_kernel(name)
    chosen = modelled(kernel, CASES[name].typical, BEST, "float32", **{tunable: value})
    if chosen is None:
        pytest.skip(f"no point of {BEST.name} has {tunable}={value}")
    check(Variant(kernel, "float32", chosen, BEST), built)


@pytest.mark.parametrize("name", kernel_names())
def test_each_transform_can_be_left_out_alone(name: str, built: Path) -> None:
    kernel = load_kernel(name)
    for transform in kernel.tunables:
        off = {tunable: t.off for tunable, t in kernel.tunables[transform].items()}
        chosen = modelled(kernel, CASES[name].typical, BEST, "float64", **off)
        check(Variant(kernel, "float64", chosen, BEST), built)


@pytest.mark.parametrize("name", kernel_names())
def test_clang_builds_the_same_kernel(name: str, built: Path) -> None:
    if not shutil.which("clang"):
        pytest.skip("clang is not installed")
    kernel = load_kernel(name)
    chosen = modelled(kernel, CASES[name].typical, BEST, "float32")
    check(Variant(kernel, "float32", chosen, BEST, compiler="clang"), built)


@pytest.mark.parametrize("at_end", [False, True], ids=["at the start", "at the end"])
@pytest.mark.parametrize("name", kernel_names())
def test_no_byte_outside_the_tensors_is_read_or_written(
    name: str, at_end: bool, built: Path
) -> None:
    kernel = load_kernel(name)
    chosen = modelled(kernel, CASES[name].typical, BEST, "float32")
    variant = Variant(kernel, "float32", chosen, BEST)
    library = variant.build(built)

    def run() -> None:
        for sizes in CASES[name].sizes:
            given = inputs(kernel, sizes, "float32")
            fenced = {key: Fenced(value, at_end=at_end) for key, value in given.items()}
            tensors = {key: item.array for key, item in fenced.items()}
            call(library, arguments_for(variant, sizes, tensors))

    assert survives(run)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_fused_bias_and_rectifier_end_the_product(
    packed: bool, threads: int, built: Path
) -> None:
    kernel = load_kernel("matmul")
    chosen = modelled(
        kernel, CASES["matmul"].typical, BEST, "float32", b=packed, threads=threads, kc=128
    )
    variant = Variant(kernel, "float32", chosen, BEST, Epilogue("bias_relu", ("bias",)))
    library = variant.build(built)
    for sizes in CASES["matmul"].sizes:
        tensors = inputs(kernel, sizes, "float32")
        tensors["bias"] = np.linspace(-2, 2, sizes["N"]).astype(np.float32)
        call(library, arguments_for(variant, sizes, tensors))
        wanted = np.maximum(tensors["A"].astype(float) @ tensors["B"] + tensors["bias"], 0)
        np.testing.assert_allclose(tensors["C"], wanted, rtol=1e-5, atol=1e-4)


def test_a_nan_is_not_hidden(built: Path) -> None:
    for name in ("gelu", "softmax", "bias_relu", "layernorm"):
        kernel = load_kernel(name)
        sizes = {"n": 67, "rows": 3, "cols": 67}
        variant = Variant(
            kernel, "float32", modelled(kernel, CASES[name].typical, BEST, "float32"), BEST
        )
        library = variant.build(built)
        for spot in (0, 20, 66):
            tensors = inputs(kernel, sizes, "float32")
            tensors["x"].flat[spot] = np.nan
            tensors["y"][...] = 0
            call(library, arguments_for(variant, sizes, tensors))
            assert np.isnan(tensors["y"].flat[spot]), (name, spot)
