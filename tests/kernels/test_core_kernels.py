"""Core kernels: right for every size, tile and number of buffers, within SRAM, and no data is used
before it is waited for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, inputs
from core_harness import (
    SANITIZED,
    TARGET,
    Outcome,
    chosen,
    core_kernel,
    library_of,
    load_arch,
    run,
    source_of,
    step,
    with_epilogue,
)
from harness import survives
from test_workloads import filled, golden_of, load_workload, sizes_of

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.config.schema import Arch, Scalar
from kernloom.plan.cores import sram_bytes
from kernloom.plan.microkernels import caught, find
from kernloom.plan.schedule import StepRecord
from kernloom.plan.space import check_point, empty_space_error, tunables_of, variables_of

ARCHES = ("a2a3", "a5", "mppa")
DTYPES = ("float32", "float64")


def output_of(record: StepRecord) -> str:
    return next(a.name for a in record.arguments if a.kind == "tensor" and a.access != "read")


def tiled(record: StepRecord, which: str, buffers: int, arch: Arch) -> StepRecord:
    """The step with the model's tile, or with the least one there is."""
    if which == "model":
        return chosen(record, arch, buffers=buffers)
    group = record.kernel.tunables["tile"]
    least = {name: min(spec.values) for name, spec in group.items()}
    return record.decided("tile", {**least, "buffers": buffers})


def bytes_by_constraint(record: StepRecord, arch: Arch) -> int:
    """The SRAM that the kernel's constraint counts."""
    (constraint,) = [c for c in record.kernel.constraints if "sram" in c]
    known = {**variables_of(record, arch)}
    for transform in ("distribute", "tile"):
        known |= record.decisions.get(transform, {})
    return int(evaluate(constraint.rpartition("<=")[0], known))


def checked(record: StepRecord, library: Path, folder: Path, arch: Arch, **how: int) -> Outcome:
    """Runs a step on seeded tensors and compares with the golden."""
    case = CASES[record.kernel.name]
    tensors = inputs(record.kernel, record.sizes, record.dtype)
    wanted = case.expected(tensors, record.sizes)
    outcome = run(library, record, tensors, folder, sram_bytes(arch), **how)
    assert not outcome.message, (record.sizes, record.decisions, outcome.message)
    assert case.close(tensors[output_of(record)], wanted), (record.sizes, record.decisions)
    return outcome


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_a_core_kernel_is_right_for_every_size(
    name: str, dtype: str, buffers: int, built: Path
) -> None:
    arch, case, kernel = load_arch("a5"), CASES[name], core_kernel(name)
    typical = step(kernel, dtype, case.typical, arch, scalars=case.scalars)
    made = tiled(typical, "least", buffers, arch)
    # Sizes are arguments: one library serves them all.
    library = build(made, arch, built)
    for sizes in case.sizes:
        record = step(kernel, dtype, sizes, arch, scalars=case.scalars)
        record = record.decided("tile", made.decisions["tile"])
        outcome = checked(record, library, built, arch)
        assert outcome.sram <= bytes_by_constraint(record, arch)


@pytest.mark.parametrize("name", CASES)
def test_a_core_kernel_does_nothing_undefined(name: str, built: Path) -> None:
    arch, case, kernel = load_arch("a5"), CASES[name], core_kernel(name)
    record = step(kernel, "float32", case.sizes[-1], arch, scalars=case.scalars)
    record = tiled(record, "least", 2, arch)
    library = library_of(source_of(record, arch), built, SANITIZED)
    assert survives(lambda: checked(record, library, built, arch) and None)


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in CASES if name != "bias_relu"])
def test_every_case_of_a_workload_meets_its_tolerance(
    name: str, dtype: str, buffers: int, built: Path
) -> None:
    workload, arch, kernel = load_workload(name), load_arch("a5"), core_kernel(name)
    ((_, call),) = workload.steps.items()
    tile: Mapping[str, Scalar] = {}
    for case in ("default", "small", "ragged"):
        sizes = sizes_of(workload, case)
        own = {
            argument: evaluate(call.args.get(argument, argument), sizes)
            for argument, declared in kernel.arguments.items()
            if declared.kind == "size"
        }
        record = step(kernel, dtype, own, arch, scalars=workload.scalars)
        tile = tile or chosen(record, arch, buffers=buffers).decisions["tile"]
        record = record.decided("tile", tile)
        tensors = filled(workload, sizes, dtype)
        wanted = golden_of(workload, output_of(record), tensors, sizes)
        library = build(record, arch, built)
        outcome = run(library, record, tensors, built, sram_bytes(arch))
        assert not outcome.message, (case, outcome.message)
        tolerance = workload.tolerance[dtype]
        rtol, atol = (float(evaluate(item, sizes)) for item in (tolerance.rtol, tolerance.atol))
        np.testing.assert_allclose(tensors[output_of(record)], wanted, rtol=rtol, atol=atol)


def build(record: StepRecord, arch: Arch, folder: Path) -> Path:
    return library_of(source_of(record, arch), folder)


@pytest.mark.parametrize("name", [name for name in CASES if name != "sum"])
def test_blocks_share_the_tiles_of_a_kernel(name: str, built: Path) -> None:
    arch, case, kernel = load_arch("a5"), CASES[name], core_kernel(name)
    made = tiled(step(kernel, "float32", case.typical, arch), "least", 2, arch)
    library = build(made, arch, built)
    sizes = case.sizes[-1]
    record = step(kernel, "float32", sizes, arch, scalars=case.scalars)
    alone = None
    for blocks in (1, 3):
        outcome = checked(record, library, built, arch, blocks=blocks)
        assert alone in (None, outcome.operations), "the same work in all"
        alone = outcome.operations


def test_sum_refuses_to_be_shared(built: Path) -> None:
    arch, kernel = load_arch("a5"), core_kernel("sum")
    record = tiled(step(kernel, "float32", {"n": 100}, arch), "least", 1, arch)
    tensors = inputs(kernel, {"n": 100}, "float32")
    outcome = run(build(record, arch, built), record, tensors, built, sram_bytes(arch), blocks=2)
    assert "single block" in outcome.message


@pytest.mark.parametrize("name", CASES)
def test_with_two_buffers_the_next_tile_is_loaded_while_one_is_computed(
    name: str, built: Path
) -> None:
    arch, case, kernel = load_arch("a5"), CASES[name], core_kernel(name)
    ahead = {}
    for buffers in (1, 2):
        record = tiled(
            step(kernel, "float32", case.typical, arch, scalars=case.scalars),
            "least",
            buffers,
            arch,
        )
        outcome = checked(record, build(record, arch, built), built, arch)
        ahead[buffers] = outcome.ahead
    assert ahead[1] == 0
    assert ahead[2] > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_ends_with_its_epilogue(dtype: str, built: Path) -> None:
    arch, kernel = load_arch("a5"), core_kernel("matmul")
    for sizes in CASES["matmul"].sizes[-4:]:
        record = with_epilogue(tiled(step(kernel, dtype, sizes, arch), "least", 2, arch))
        tensors = inputs(kernel, sizes, dtype)
        tensors["bias"] = np.random.default_rng(1).uniform(-2, 2, sizes["N"]).astype(dtype)
        wanted = np.maximum(tensors["A"].astype(float) @ tensors["B"] + tensors["bias"], 0)
        outcome = run(build(record, arch, built), record, tensors, built, sram_bytes(arch))
        assert not outcome.message
        assert CASES["matmul"].close(tensors["C"], wanted)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("name", CASES)
def test_the_models_tile_fits_into_sram_on_every_arch(name: str, arch: str) -> None:
    data, kernel, workload = load_arch(arch), core_kernel(name), CASES[name]
    for dtype in DTYPES:
        for sizes in (*workload.sizes, workload.typical):
            record = chosen(step(kernel, dtype, sizes, data), data)
            assert bytes_by_constraint(record, data) <= sram_bytes(data)


def test_the_model_follows_the_arch() -> None:
    kernel = core_kernel("matmul")
    sizes = {"M": 1024, "N": 1024, "K": 1024}
    wide, narrow = load_arch("a5"), load_arch("mppa")
    tiles = [chosen(step(kernel, "float32", sizes, arch), arch) for arch in (wide, narrow)]
    areas = [r.decisions["tile"]["m"] * r.decisions["tile"]["n"] for r in tiles]  # type: ignore[operator]
    assert areas[0] > areas[1], "more SRAM, larger tiles"


def test_tiles_that_do_not_fit_are_refused_with_both_numbers_and_the_key() -> None:
    arch, kernel = load_arch("a5"), core_kernel("softmax")
    known = variables_of(step(kernel, "float32", {"rows": 4, "cols": 100_000}, arch), arch)
    error = empty_space_error(kernel, {}, known, key="select")
    assert error.key == "arch.sram.bytes"
    assert "800000 bytes" in error.message
    assert "524288" in error.message
    assert "800000 or more" in str(error.hint)
    with pytest.raises(ConfigError, match=r"arch.sram.bytes: .*1600000 bytes.*524288"):
        point = {"height": 1, "buffers": 2, "group": 1, "spmd": False}
        check_point(kernel, point, known, key="select")


def test_products_run_on_the_matrix_unit_where_it_computes_the_element_type(built: Path) -> None:
    arch, kernel = load_arch("a5"), core_kernel("matmul")
    expected = {
        ("float32", True): ("matrix", "matrix", 0),
        ("float32", False): ("vector", "vector", 1),
        ("float64", True): ("vector", "vector", 1),
    }
    sizes = {"M": 20, "N": 20, "K": 20}
    for (dtype, matrix), (core_type, unit, number) in expected.items():
        record = step(kernel, dtype, sizes, arch, matrix=matrix)
        assert record.decisions["core"] == {"type": core_type, "unit": unit}
        outcome = checked(record, build(record, arch, built), built, arch)
        assert outcome.core_type == number
        assert outcome.operations[unit] == 2 * 20**3
    only_matrix = load_arch("mppa")
    record = step(kernel, "float64", sizes, only_matrix)
    assert record.decisions["core"] == {"type": "matrix", "unit": "vector"}
    with pytest.raises(ConfigError, match=r"arch.compute: arch 'x86_64_v3' is no accelerator"):
        step(kernel, "float32", sizes, load_arch("x86_64_v3"))


@pytest.mark.parametrize(("name", "cycles"), [("a5", None), ("a2a3", None), ("mppa", 8)])
def test_a_caught_product_costs_whole_tiles(name: str, cycles: int | None, built: Path) -> None:
    arch, kernel = load_arch(name), core_kernel("matmul")
    for sizes in ({"M": 40, "N": 37, "K": 53}, {"M": 256, "N": 64, "K": 48}):
        record = tiled(step(kernel, "float32", sizes, arch), "model", 2, arch)
        found = find(record, TARGET, arch)
        assert found.micro_kernel
        record = caught(record, found.name, found.micro_kernel)
        tile = found.micro_kernel.tile
        outcome = checked(record, build(record, arch, built), built, arch)
        chosen_tile = record.decisions["tile"]
        whole = 1
        for size, block, inner in (("M", "m", tile.m), ("N", "n", tile.n), ("K", "k", tile.k)):
            width = int(chosen_tile[block])
            parts = [min(width, sizes[size] - at) for at in range(0, sizes[size], width)]
            whole *= sum(-(-part // inner) for part in parts)
        if cycles:
            assert outcome.cycles == whole * cycles
        else:
            assert outcome.operations["matrix"] == whole * 2 * tile.m * tile.n * tile.k


def test_arch_data_reaches_a_kernel_by_its_tile_only() -> None:
    arch, kernel = load_arch("a5"), core_kernel("matmul")
    assert arch.hbm
    slow = replace(arch, hbm=replace(arch.hbm, bandwidth=arch.hbm.bandwidth / 2))
    sizes = {"M": 64, "N": 64, "K": 64}
    record = step(kernel, "float32", sizes, arch)
    assert source_of(record, arch).files == source_of(record, slow).files


@cache
def _values(name: str) -> dict[str, tuple[Scalar, ...]]:
    return {tunable: values for tunable, (_, values) in tunables_of(core_kernel(name)).items()}


@pytest.mark.parametrize("name", CASES)
def test_every_core_kernel_has_one_or_two_buffers(name: str) -> None:
    assert _values(name)["buffers"] == (2, 1)
    source = core_kernel(name).sources["core"]
    assert source.template == f"kernels/{name}/core.c.j2"
    assert source.core in ("matrix", "vector")


@pytest.mark.parametrize("name", CASES)
def test_a_core_kernel_gives_the_same_bits_on_every_isa(name: str, built: Path) -> None:
    """No function of the C library, whose last bits differ, and no contracted multiplication."""
    arch, kernel = load_arch("a5"), core_kernel(name)
    for dtype in DTYPES:
        record = tiled(step(kernel, dtype, CASES[name].typical, arch), "least", 2, arch)
        library = library_of(source_of(record, arch), built, ("-march=x86-64-v3",))
        shown = subprocess.run(
            ["objdump", "--disassemble", str(library)], capture_output=True, text=True, check=True
        )
        assert not re.search(r"\bvfn?m(add|sub)", shown.stdout)
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True
        )
        needed = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
        runtime = {name for name in needed if name.startswith(("_", "mem"))}
        assert needed == runtime, f"{name} calls {needed - runtime}"
