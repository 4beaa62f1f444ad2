"""Micro-kernels of users on a CPU, in C and in assembly: right for every size of a product."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, inputs
from core_harness import KERNEL_FLAGS, library_of, load_arch, with_epilogue
from harness import ROOT, call, load_kernel

import parts
from kernloom.config.schema import Arch, MicroKernel, MicroTile, Scalar, Target
from kernloom.plan.microkernels import caught, find
from kernloom.plan.render import Renderer
from kernloom.plan.schedule import BoundArgument, StepRecord
from kernloom.plan.source import Source

HOST = Target("host", "host", "host", ("host",))
PRODUCT = """
static void product(long depth, const float *a, long lda, const float *b, long ldb, float *c,
                    long ldc)
{
    for (long i = 0; i < 3; i++)
        for (long j = 0; j < 8; j++)
            for (long k = 0; k < depth; k++)
                c[i * ldc + j] += a[i * lda + k] * b[k * ldb + j];
}
"""
ASSEMBLY = """\
# The first arguments are in rdi (depth), rsi (a), rdx (lda), rcx (b), r8 (ldb) and r9 (c).
    .text
    .globl product
    .type product, @function
product:
    movups (%r9), %xmm0
    shlq $2, %r8
1:  movss (%rsi), %xmm1
    shufps $0, %xmm1, %xmm1
    movups (%rcx), %xmm2
    mulps %xmm2, %xmm1
    addps %xmm1, %xmm0
    addq $4, %rsi
    addq %r8, %rcx
    decq %rdi
    jnz 1b
    movups %xmm0, (%r9)
    ret
    .size product, .-product
"""
CHOICES: tuple[dict[str, dict[str, Scalar]], ...] = (
    {"tile": {"kc": 128, "nc": 256}, "pack": {"b": True}},
    {"tile": {"kc": 0, "nc": 0}, "pack": {"b": False}},
    {"tile": {"kc": 256, "nc": 512}, "pack": {"b": False}, "parallelize": {"threads": 2}},
)
PARALLEL = """
void kl_parallel(long tasks, long threads, void (*body)(void *context, long task), void *context)
{
    (void)threads;
    for (long task = 0; task < tasks; task++)
        body(context, task);
}
"""


def step(sizes: dict[str, int], choice: dict[str, dict[str, Scalar]]) -> StepRecord:
    kernel = load_kernel("matmul")
    arguments = tuple(
        BoundArgument(name, "size", "read", "int64", sizes[name])
        if argument.kind == "size"
        else BoundArgument(name, "tensor", argument.access, "float32", name)
        for name, argument in kernel.arguments.items()
    )
    off: dict[str, dict[str, Scalar]] = {
        transform: {name: tunable.off for name, tunable in group.items()}
        for transform, group in kernel.tunables.items()
    }
    record = StepRecord(
        "step", kernel, "float32", arguments, sizes, "", "workload.kernels.matmul", off
    )
    record = record.decided("vectorize", {"lanes": 4})
    for transform, values in choice.items():
        record = record.decided(transform, values)
    return record


def arch_with(name: str, tile: MicroTile, file: str) -> Arch:
    micro = MicroKernel("matmul", tile, "float32", file, "product")
    return replace(load_arch("x86_64_v2"), micro_kernels={name: micro})


def rendered(record: StepRecord, arch: Arch, folder: Path) -> tuple[StepRecord, Source]:
    found = find(record, HOST, arch)
    assert found.micro_kernel, found.reasons
    record = caught(record, found.name, found.micro_kernel)
    source = Renderer([folder, ROOT / "templates"]).source("tested", record, arch, HOST)
    # In this process there is no runner to share the work.
    main = source.files[source.main] + (PARALLEL if "kl_parallel" in source.whole_text else "")
    return record, replace(source, files={**source.files, source.main: main})


def check(record: StepRecord, library: Path, sizes: dict[str, int]) -> None:
    tensors = inputs(load_kernel("matmul"), sizes, "float32")
    wanted = tensors["A"].astype(float) @ tensors["B"]
    if record.epilogue:
        tensors["bias"] = np.random.default_rng(1).uniform(-2, 2, sizes["N"]).astype(np.float32)
        wanted = np.maximum(wanted + tensors["bias"], 0)
    values = [
        np.int64(sizes[argument.name]) if argument.kind == "size" else tensors[argument.name]
        for argument in record.arguments
    ]
    call(library, values)
    assert CASES["matmul"].close(tensors["C"], wanted), (sizes, record.decisions)


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(
    ("tile", "file", "text"),
    [
        (MicroTile(3, 8, 4), "product.c", PRODUCT),
        (MicroTile(1, 4, 1), "product.s", ASSEMBLY),
    ],
)
def test_a_micro_kernel_of_a_user_computes_the_inner_tile(
    tile: MicroTile,
    file: str,
    text: str,
    choice: dict[str, dict[str, Scalar]],
    epilogue: bool,
    tmp_path: Path,
) -> None:
    if file.endswith(".s") and platform.machine() != "x86_64":
        parts.without("an x86-64 CPU, which the assembly is for")
    (tmp_path / file).write_text(text)
    arch = arch_with("mine", tile, file)
    record = step({"M": 64, "N": 64, "K": 64}, choice)
    record, source = rendered(with_epilogue(record) if epilogue else record, arch, tmp_path)
    assert record.decisions["tile"]["mr"] == tile.m
    library = library_of(source, tmp_path, ("-march=x86-64-v2", *KERNEL_FLAGS))
    for sizes in CASES["matmul"].sizes:
        check(record, library, dict(sizes))


def test_the_function_is_not_exported(tmp_path: Path) -> None:
    if platform.machine() != "x86_64":
        parts.without("an x86-64 CPU, which the assembly is for")
    import subprocess

    (tmp_path / "product.s").write_text(ASSEMBLY)
    arch = arch_with("mine", MicroTile(1, 4), "product.s")
    _, source = rendered(step({"M": 4, "N": 4, "K": 4}, CHOICES[1]), arch, tmp_path)
    library = library_of(source, tmp_path)
    listed = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True)
    assert "product" not in listed.stdout
    assert "kl_entry" in listed.stdout
