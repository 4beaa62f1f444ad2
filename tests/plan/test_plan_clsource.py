"""Plain files of OpenCL C as kernels: read, checked against the config, packaged as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from workbench import Workbench

from kernloom.plan.csource import OPENCL_C, read_signature

Project = Callable[..., Workbench]

PLAIN = """\
// __kernel void scale(int wrong) {
#include "parts/steps.h"
__kernel __attribute__((vec_type_hint(float)))
void scale(const int n, float alpha, __global const float *restrict x, global float *y)
{
    const int i = get_global_id(0);
    if (i < n)
        y[i] = STEP(alpha, x[i]) + 0 * BLOCK;
}
"""
FILES = {
    "templates/plain/scale.cl": PLAIN,
    "templates/plain/parts/steps.h": "#define STEP(a, b) ((a) * (b))\n",
}
PREFIX = "workload.kernels.scale.sources"


def words(**changed: str) -> list[str]:
    """A toy whose kernel has a plain file of OpenCL C; the target takes it in the host's place."""
    source = {
        "file": "plain/scale.cl",
        "function": "scale",
        "macros": "{BLOCK: block * 2}",
        "work": "{items: ['round_up(n, 64)'], group: [64]}",
        **changed,
    }
    inner = ", ".join(f"{key}: {value}" for key, value in source.items())
    return ["workload=toy", "target.sources=[cl]", f"++{PREFIX}.cl={{{inner}}}"]


def test_a_plain_file_is_one_text_with_its_macros_and_what_it_includes(project: Project) -> None:
    plan = project(FILES).plan(*words(), "select.fixed.tile.block=32")
    source = plan.outputs["source"]["sources"][0].source
    assert set(source.files) == {"kernel.cl", "plain/parts/steps.h"}
    text = source.files["kernel.cl"]
    assert text.endswith(f'#define BLOCK 64\n#line 1 "scale.cl"\n{PLAIN}')
    assert set(source.origins) == {"plain/scale.cl", "plain/parts/steps.h"}
    assert source.launched.function == "scale"
    assert source.launched.dtypes == ("int32", "float32", "float32", "float32")
    assert source.launched.include == "plain"


def test_a_plain_file_without_includes_needs_no_folder(project: Project) -> None:
    text = PLAIN.replace('#include "parts/steps.h"\n', "#define STEP(a, b) a * b\n")
    plan = project({"templates/plain/scale.cl": text}).plan(*words())
    source = plan.outputs["source"]["sources"][0].source
    assert set(source.files) == {"kernel.cl"}
    assert source.launched.include == ""


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("int n, float a, __global float *x", "takes 3 arguments (n, a, x)"),
        ("int n, float a, __global float *y, __global float *x", "'y' would get the argument 'x'"),
        ("int n, float a, __local float *x, __global float *y", "'x' points to local memory"),
        ("int n, float a, float *x, __global float *y", "'x' points to private memory"),
        ("int n, double a, __global float *x, __global float *y", "'a' is double, but scalar"),
        ("int n, float a, __global float4 *x, __global float *y", "'x' is float4 *, but tensor"),
        ("uint n, float a, __global float *x, __global float *y", "'n' is uint, but 'n' is a size"),
        ("int n, float a, __global float *x, __constant float *y", "says it is write"),
    ],
)
def test_a_signature_that_does_not_fit_is_named(
    project: Project, parameters: str, said: str
) -> None:
    text = f"#define X BLOCK\n__kernel void scale({parameters})\n{{\n}}\n"
    files = {"templates/plain/scale.cl": text}
    assert said in project(files).refusal(*words())


SCRATCH = "{items: [64], group: [64], scratch: 64}"
TWO = "int n, float a, __global float *x, __global float *y"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"__kernel void scale({TWO}) {{ }}", "does not take the scratch memory"),
        (f"__kernel void scale({TWO}, __global int *s) {{ }}", "does not take the scratch memory"),
        (f"__kernel void scale({TWO}, __global float *s) {{ }}", "no function 'scale_finish'"),
        (
            f"__kernel void scale({TWO}, __global float *s) {{ }}"
            f"__kernel void scale_finish({TWO.replace('int', 'long')}, __global float *s) {{ }}",
            "scale() and scale_finish() take sizes of different types",
        ),
    ],
)
def test_a_second_function_and_its_scratch_are_checked_too(
    project: Project, text: str, said: str
) -> None:
    bench = project({"templates/plain/scale.cl": f"#define X BLOCK\n{text}\n"})
    finish = {"finish": "{items: [64], group: [64]}"} if "finish" in said else {}
    assert said in bench.refusal(*words(work=SCRATCH, **finish))


def test_a_macro_that_the_file_does_not_use_is_named(project: Project) -> None:
    message = project(FILES).refusal(*words(macros="{BLOKC: 1}"))
    assert "does not use the macro 'BLOKC'" in message
    assert "Did you mean 'BLOCK'?" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global const float *restrict x", ("x", "float32", True, True, "global")),
        ("constant uchar *x", ("x", "uint8", True, True, "constant")),
        ("__local double *x", ("x", "float64", True, False, "local")),
        ("const long x", ("x", "int64", False, True, "")),
        ("int64_t x", ("x", "", False, False, "")),
    ],
)
def test_reads_parameters(text: str, expected: tuple[object, ...]) -> None:
    source = f"__kernel void f({text})\n{{\n}}\n"
    (found,) = read_signature(source, "f", where="f.cl", key="k", dialect=OPENCL_C)
    assert (found.name, found.dtype, found.pointer, found.constant, found.space) == expected
