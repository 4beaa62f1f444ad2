"""Renders, compiles and runs one core kernel on a PE made of arrays (core_memory.c)."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from harness import ROOT, load_kernel

from kernloom.base.expressions import evaluate
from kernloom.config.convert import convert
from kernloom.config.schema import Arch, Kernel, Scalar, Target
from kernloom.plan.cores import core_choice
from kernloom.plan.coresource import ENTRY, TYPE
from kernloom.plan.render import Renderer
from kernloom.plan.schedule import BoundArgument, Epilogue, StepRecord
from kernloom.plan.source import Source
from kernloom.plan.space import space_of, variables_of

FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
KERNEL_FLAGS = ("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
TARGET = Target("tested", "accelerator", "accelerator", ("core",))
BASE = 1 << 40
GUARD = 0xA5
SANITIZED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")


@cache
def load_arch(name: str) -> Arch:
    data = yaml.safe_load((ROOT / "configs/arch" / f"{name}.yaml").read_text())
    return convert(Arch, data, "arch")


@cache
def core_kernel(name: str) -> Kernel:
    return load_kernel(name).for_sources(TARGET.sources)


def step(
    kernel: Kernel,
    dtype: str,
    sizes: Mapping[str, int],
    arch: Arch,
    *,
    scalars: Mapping[str, float] | None = None,
    matrix: bool = True,
) -> StepRecord:
    """A call of a kernel, its arguments bound to tensors of their own names."""
    found = kernel.source_for(TARGET.sources)
    assert found
    arguments = []
    for name, argument in kernel.arguments.items():
        elements = 1
        for extent in argument.shape:
            elements *= evaluate(extent, sizes)
        if argument.kind == "tensor":
            bound = BoundArgument(name, "tensor", argument.access, dtype, name, elements)
        elif argument.kind == "size":
            bound = BoundArgument(name, "size", "read", "int64", sizes[name])
        else:
            bound = BoundArgument(name, "scalar", "read", dtype, (scalars or {}).get(name, 1.0))
        arguments.append(bound)
    off: dict[str, Mapping[str, Scalar]] = {
        transform: {name: tunable.off for name, tunable in group.items()}
        for transform, group in kernel.tunables.items()
    }
    off["core"] = core_choice(found[1], found[0], arch, dtype, matrix=matrix)
    return StepRecord(
        "step", kernel, dtype, tuple(arguments), dict(sizes), "", "workload.kernels.step", off
    )


def with_epilogue(record: StepRecord) -> StepRecord:
    """A product that ends with bias_relu, as `fuse` leaves it."""
    bias = BoundArgument("bias", "tensor", "read", record.dtype, "bias", record.sizes["N"])
    arguments = (*record.arguments[:-1], bias, record.arguments[-1])
    return replace(record, arguments=arguments, epilogue=Epilogue("bias_relu", ("bias",)))


def chosen(record: StepRecord, arch: Arch, **fixed: Scalar) -> StepRecord:
    """The step with the tile that the model prefers."""
    known = variables_of(record, arch)
    point = space_of(record.kernel, fixed, known).least(record.kernel.model, known)
    assert point, f"nothing fits: {fixed}"
    for transform, group in record.kernel.tunables.items():
        record = record.decided(transform, {name: point[name] for name in group})
    return record


@cache
def renderer() -> Renderer:
    return Renderer([ROOT / "templates"])


def source_of(record: StepRecord, arch: Arch, folders: tuple[Path, ...] = ()) -> Source:
    made = Renderer([*folders, ROOT / "templates"]) if folders else renderer()
    return made.source("tested.step", record, arch, TARGET)


def library_of(source: Source, folder: Path, flags: tuple[str, ...] = ()) -> Path:
    """The library of a source, compiled with its own flags after those of a toolchain."""
    key = hashlib.sha256(repr((sorted(source.files.items()), flags)).encode()).hexdigest()[:16]
    place = folder / f"core_{key}"
    output = place / "kernel.so"
    if not output.exists():
        for name, text in source.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        command = ["gcc", *FLAGS, *KERNEL_FLAGS, *flags, *source.flags, "-o", "kernel.so"]
        made = subprocess.run([*command, source.main], cwd=place, capture_output=True, text=True)
        assert made.returncode == 0, f"{place}\n{made.stderr}"
        assert not made.stderr, made.stderr
    return output


@cache
def _pe(folder: Path) -> Any:
    output = folder / "core_memory.so"
    source = ROOT / "tests/kernels/core_memory.c"
    include = f"-I{ROOT / 'native/include'}"
    subprocess.run(["gcc", *FLAGS, include, "-o", str(output), str(source)], check=True)
    return ctypes.CDLL(str(output)).run_core


@dataclass(frozen=True)
class Outcome:
    """What a task has done."""

    message: str
    """What went wrong first; empty if nothing did."""
    sram: int
    """Bytes of SRAM that were allocated."""
    operations: Mapping[str, int]
    """Operations by unit."""
    cycles: int
    ahead: int
    """Charges while a load was in flight."""
    core_type: int


def run(
    library: Path,
    record: StepRecord,
    tensors: Mapping[str, np.ndarray],
    folder: Path,
    sram: int,
    blocks: int = 1,
) -> Outcome:
    """Runs all blocks of a kernel on tensors in device memory, with guard bytes between them."""
    offsets, end = {}, 64
    for name, tensor in tensors.items():
        offsets[name] = end
        end += -(-tensor.nbytes // 64) * 64 + 64
    memory = np.full(end, GUARD, dtype=np.uint8)
    for name, tensor in tensors.items():
        memory[offsets[name] : offsets[name] + tensor.nbytes] = tensor.reshape(-1).view(np.uint8)
    words = np.zeros(len(record.arguments), dtype=np.uint64)
    for i, argument in enumerate(record.arguments):
        if argument.kind == "tensor":
            words[i] = BASE + offsets[argument.name]
        else:
            value = np.array([argument.binding], dtype=argument.dtype)
            words[i : i + 1].view(np.uint8)[: value.nbytes] = value.view(np.uint8)
    loaded = ctypes.CDLL(str(library))
    core_type = ctypes.c_uint32.in_dll(loaded, TYPE).value
    result = (ctypes.c_uint64 * 6)()
    message = ctypes.create_string_buffer(300)
    totals = np.zeros(6, dtype=np.uint64)
    for block in range(blocks):
        _pe(folder)(
            ctypes.cast(getattr(loaded, ENTRY), ctypes.c_void_p),
            words.ctypes.data_as(ctypes.c_void_p),
            memory.ctypes.data_as(ctypes.c_void_p),
            *(ctypes.c_uint64(memory.nbytes), ctypes.c_uint64(sram)),
            *(ctypes.c_uint32(block), ctypes.c_uint32(blocks), result, message),
        )
        if message.value:
            break
        totals += np.array(result[:], dtype=np.uint64)
    inside = np.zeros(end, dtype=bool)
    for name, tensor in tensors.items():
        start = offsets[name]
        inside[start : start + tensor.nbytes] = True
        tensor.reshape(-1).view(np.uint8)[:] = memory[start : start + tensor.nbytes]
    assert (memory[~inside] == GUARD).all(), "bytes outside of the tensors were written"
    used, matrix, vector, scalar, cycles, ahead = (int(value) for value in totals)
    operations = {"matrix": matrix, "vector": vector, "scalar": scalar}
    return Outcome(message.value.decode(), used, operations, cycles, ahead, core_type)
