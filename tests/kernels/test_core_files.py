"""C files of users on a PE: plain functions in a wrapper, and functions that use the API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_harness import Outcome, library_of, load_arch, run, source_of, step

from kernloom.base.errors import ConfigError
from kernloom.config.convert import convert
from kernloom.config.schema import Kernel
from kernloom.plan.cores import sram_bytes
from kernloom.plan.coresource import FLAGS, HEADER

PLAIN = """
void scale(long n, const float *x, float a, float *y)
{
    for (long i = 0; i < n; i++)
        y[i] = a * x[i] * FACTOR;
}
"""
CORE = """
#include "kernloom/core.h"

void scale(struct kl_core *core, long n, uint64_t x, float a, uint64_t y)
{
    float *tile = kl_allocate(core, n * sizeof(float));
    kl_wait(core, kl_load(core, tile, x, n * sizeof(float)));
    for (long i = 0; i < n; i++)
        tile[i] *= a;
    kl_charge(core, KL_UNIT_VECTOR, KL_DTYPE_FLOAT32, n);
    kl_wait(core, kl_store(core, y, tile, n * sizeof(float)));
}
"""


def kernel(**sources: Any) -> Kernel:
    data = {
        "name": "scale",
        "arguments": {
            "n": {"kind": "size"},
            "x": {"kind": "tensor", "shape": ["n"]},
            "a": {"kind": "scalar"},
            "y": {"kind": "tensor", "access": "write", "shape": ["n"]},
        },
        "sources": sources,
    }
    return convert(Kernel, data, "kernel")


def executed(
    made: Kernel, text: str, tmp_path: Path, n: int = 100, file: str = "scale.c"
) -> tuple[Outcome, np.ndarray, np.ndarray]:
    templates = tmp_path / "templates"
    (templates / file).parent.mkdir(parents=True, exist_ok=True)
    (templates / file).write_text(text)
    arch = load_arch("a5")
    record = step(made, "float32", {"n": n}, arch, scalars={"a": 1.5})
    source = source_of(record, arch, (templates,))
    assert source.flags == FLAGS
    assert HEADER in source.files
    library = library_of(source, tmp_path)
    tensors = {
        "x": np.linspace(-1, 1, n, dtype=np.float32),
        "y": np.full(n, np.nan, dtype=np.float32),
    }
    return run(library, record, tensors, tmp_path, sram_bytes(arch)), tensors["x"], tensors["y"]


@pytest.mark.parametrize("family", ["host", "plain", "core"])
def test_a_plain_function_is_wrapped(family: str, tmp_path: Path) -> None:
    file = {"file": "scale.c", "function": "scale", "macros": {"FACTOR": 2}}
    outcome, x, y = executed(kernel(**{family: file}), PLAIN, tmp_path)
    assert not outcome.message
    np.testing.assert_array_equal(y, np.float32(1.5) * x * 2)
    assert outcome.operations == {"matrix": 0, "vector": 0, "scalar": 200}, "elements touched"
    assert outcome.core_type == 1


def test_the_charge_of_a_plain_function_is_a_formula(tmp_path: Path) -> None:
    charge = {"unit": "vector", "operations": "2 * n + 1"}
    file = {"file": "scale.c", "function": "scale", "macros": {"FACTOR": 1}, "charge": charge}
    outcome, _, _ = executed(kernel(host=file), PLAIN, tmp_path)
    assert outcome.operations == {"matrix": 0, "vector": 201, "scalar": 0}


def test_a_plain_template_is_wrapped(tmp_path: Path) -> None:
    text = (
        "static void {{ function }}(long n, const float *x, float a, float *y)\n"
        "{ for (long i = 0; i < n; i++) y[i] = a * x[i]; }\n"
    )
    made = kernel(plain={"template": "scale.c.j2"}, host={"template": "other.c.j2"})
    outcome, x, y = executed(made, text, tmp_path, file="scale.c.j2")
    assert not outcome.message
    np.testing.assert_array_equal(y, np.float32(1.5) * x)


def test_only_plain_c_is_wrapped() -> None:
    assert kernel(host={"template": "scale.c.j2"}).source_for(["core"]) is None
    work = {"items": ["n"], "group": [1]}
    opencl = {"file": "scale.cl", "function": "scale", "work": work}
    assert kernel(host=opencl, opencl=opencl).source_for(["core"]) is None


def test_tensors_that_do_not_fit_are_refused_with_both_numbers_and_the_key(tmp_path: Path) -> None:
    file = {"file": "scale.c", "function": "scale", "macros": {"FACTOR": 1}}
    n = 512 * 1024 // 8
    outcome, _, _ = executed(kernel(host=file), PLAIN, tmp_path, n)
    assert not outcome.message
    assert outcome.sram == 512 * 1024
    with pytest.raises(ConfigError, match=r"arch.sram.bytes: .* 524416 bytes .* has 524288"):
        executed(kernel(host=file), PLAIN, tmp_path, n + 1)


@pytest.mark.parametrize("name", ["scale.c", "mine/scale.c"])
def test_a_function_may_use_the_api_itself(name: str, tmp_path: Path) -> None:
    file = {"file": name, "function": "scale", "core": "vector"}
    outcome, x, y = executed(kernel(core=file), CORE, tmp_path, file=name)
    assert not outcome.message
    np.testing.assert_array_equal(y, np.float32(1.5) * x)
    assert outcome.operations["vector"] == 100


@pytest.mark.parametrize(
    ("changed", "by", "message"),
    [
        ("uint64_t x", "const float *x", "gets the address of tensor 'x' as uint64_t"),
        ("long n, uint64_t x", "uint64_t x, long n", "uint64_t"),
        ("float a, uint64_t y", "uint64_t y", "takes 3 arguments"),
        ("long n", "float n", "is a size"),
    ],
)
def test_another_signature_is_refused(changed: str, by: str, message: str, tmp_path: Path) -> None:
    file = {"file": "scale.c", "function": "scale", "core": "vector"}
    with pytest.raises(ConfigError, match=message):
        executed(kernel(core=file), CORE.replace(changed, by), tmp_path)


WRONG = {
    "two copies use the same SRAM": ("kl_wait(core, kl_load(", "((void)kl_load("),
    "a store was never waited for": ("kl_wait(core, kl_store(", "((void)kl_store("),
    "a copy outside of device memory": ("tile, x, n *", "tile, x, 1000 * n *"),
    "a copy outside of SRAM": ("kl_store(core, y, tile,", "kl_store(core, y, tile + 64,"),
    "SRAM is exhausted": ("kl_allocate(core, n", "kl_allocate(core, 1000000 * n"),
    "a wait for no copy": ("kl_wait(core, kl_load(", "kl_wait(core, 7 + kl_load("),
}


@pytest.mark.parametrize("message", WRONG)
def test_the_harness_finds_wrong_kernels(message: str, tmp_path: Path) -> None:
    file = {"file": "scale.c", "function": "scale", "core": "vector"}
    changed, by = WRONG[message]
    assert changed in CORE
    outcome, _, _ = executed(kernel(core=file), CORE.replace(changed, by), tmp_path)
    assert message in outcome.message


def test_the_arch_decides_where_a_wrapped_function_runs() -> None:
    file = {"file": "scale.c", "function": "scale"}
    mppa = load_arch("mppa")
    assert step(kernel(host=file), "float32", {"n": 1}, mppa).decisions["core"] == {
        "type": "matrix",
        "unit": "scalar",
    }
    assert mppa.compute
    rates = {"matrix": {"float32": 1.0}}
    without = replace(mppa, compute=replace(mppa.compute, matrix=rates))
    with pytest.raises(ConfigError, match=r"arch.compute: no PE .* float32 on its scalar unit"):
        step(kernel(host=file), "float32", {"n": 1}, without)
