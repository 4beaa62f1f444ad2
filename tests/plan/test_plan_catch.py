"""The transform `catch`: which micro-kernel takes the inner tile of a step, and why another does
not."""

from __future__ import annotations

from pathlib import Path

import pytest
from workbench import Workbench, write

from kernloom.base.errors import ConfigError

FILES = {
    "kernloom.yaml": "",
    "configs/arch/mine.yaml": """
defaults: [x86_64_v2, _self_]
name: mine
micro_kernels:
  own_4x8: {operation: matmul, tile: {m: 4, n: 8}, dtype: float32, file: own.c, function: own}
  elsewhere:
    {operation: matmul, tile: {m: 4, n: 8}, dtype: float32, file: own.c, function: own,
     isa: riscv64}
  packed:
    {operation: matmul, tile: {m: 4, n: 8}, dtype: float32, file: own.c, function: own,
     layout: packed_b}
  double: {operation: matmul, tile: {m: 4, n: 8}, dtype: float64, file: own.c, function: own}
  odd: {operation: matmul, tile: {m: 4, n: 7}, dtype: float32, file: own.c, function: own}
  huge: {operation: matmul, tile: {m: 4, n: 1024}, dtype: float32, file: own.c, function: own}
  other: {operation: softmax, tile: {m: 4, n: 8}, dtype: float32, file: own.c, function: own}
""",
    "templates/own.c": """
#include "shared.h"
static void own(long depth, const float *a, long lda, const float *b, long ldb, float *c, long ldc)
{
    PRODUCT(4, 8)
}
""",
    "templates/shared.h": """
#define PRODUCT(m, n) \\
    for (long i = 0; i < m; i++) \\
        for (long k = 0; k < depth; k++) \\
            for (long j = 0; j < n; j++) \\
                c[i * ldc + j] += a[i * lda + k] * b[k * ldb + j];
""",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    folder = tmp_path_factory.mktemp("catching")
    write(folder, FILES)
    return Workbench(folder, folder)


def test_the_first_that_fits_is_caught_and_every_other_has_its_reason(bench: Workbench) -> None:
    plan = bench.plan("arch=mine")
    assert plan.outputs["catching"]["caught"] == {
        "multiply": {
            "caught": "own_4x8",
            "not caught": {
                "elsewhere": "it is written for riscv64, and arch 'mine' is x86_64",
                "packed": "it needs a packed B, and pack.b is false",
                "double": "it computes float64, and the step is float32",
                "odd": "its 7 columns are no multiple of the 4 lanes of the loops",
                "huge": "its tile of 4 x 1024 is larger than the result of 256 x 256",
                "other": "it computes softmax, and the step is matmul",
            },
        }
    }
    (record,) = plan.schedule
    assert record.decisions["tile"] | {"kc": 0, "nc": 0} == {"mr": 4, "nv": 2, "kc": 0, "nc": 0}
    assert "own(whole, a, lda, b, ldb, c, ldc);" in plan.text
    (item,) = plan.outputs["source"]["sources"]
    assert {"own.c", "shared.h"} <= set(item.source.files), "declared and hashed with the kernel"
    assert {"own.c", "shared.h"} <= set(item.source.origins)


def test_catch_off_leaves_the_loops(bench: Workbench) -> None:
    off = bench.plan("arch=mine", "catch=off")
    reasons = off.outputs["catching"]["caught"]["multiply"]
    assert reasons["caught"] is None
    assert set(reasons["not caught"].values()) == {"catch=off"}
    plain = bench.plan("arch=x86_64_v2")
    assert off.text == plain.text
    assert plain.outputs["catching"]["caught"]["multiply"]["not caught"] == {
        "(none)": "arch 'x86_64_v2' and kernel 'matmul' declare none"
    }


@pytest.mark.parametrize("written", ["off", "'off'", "false"])
def test_off_may_be_written_as_yaml_reads_it(written: str, tmp_path: Path) -> None:
    write(tmp_path, FILES)
    preset = f"# @package _global_\ncatch: {written}\n"
    write(tmp_path, {"configs/experiment/plain.yaml": preset})
    plan = Workbench(tmp_path, tmp_path).plan("arch=mine", "experiment=plain")
    assert plan.outputs["catching"]["caught"]["multiply"]["caught"] is None


def test_a_kernel_may_declare_its_own(bench: Workbench) -> None:
    own = "{operation: matmul, tile: {m: 2, n: 8}, dtype: float32, file: own.c, function: own}"
    plan = bench.plan("arch=mine", f"+workload.kernels.matmul.micro_kernels.mine={own}")
    assert plan.outputs["catching"]["caught"]["multiply"]["caught"] == "mine"


def test_a_packed_b_is_caught_where_b_is_packed(bench: Workbench) -> None:
    words = ("arch=mine", "select.fixed.pack.b=true", "~arch.micro_kernels.own_4x8")
    plan = bench.plan(*words)
    assert plan.outputs["catching"]["caught"]["multiply"]["caught"] == "packed"
    assert "const long ldb = NR;" in plan.text


def test_only_some_steps_may_be_caught(bench: Workbench) -> None:
    plan = bench.plan("arch=mine", "workload=mlp", "pipeline.stages.catching.steps=[fc2]")
    caught = plan.outputs["catching"]["caught"]
    assert [caught[step]["caught"] for step in ("fc1", "fc2", "fc3")] == [None, "own_4x8", None]
    assert "unknown step 'fc9'" in bench.refusal(
        "arch=mine", "workload=mlp", "pipeline.stages.catching.steps=[fc9]"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["arch.micro_kernels.own_4x8.file=../x.c"], "^arch.micro_kernels.own_4x8.file: .*leaves"),
        (["arch.micro_kernels.own_4x8.file=none.c"], "does not exist"),
        (["arch.micro_kernels.own_4x8.function='a;b'"], "cannot be used as a name"),
        (["arch.micro_kernels.own_4x8.tile.m=0"], "arch.micro_kernels.own_4x8.tile.m"),
        (["arch.micro_kernels.own_4x8.dtype=float"], "unknown dtype 'float'"),
        (["+arch.micro_kernels.own_4x8.cost=q"], "arch.micro_kernels.own_4x8.cost"),
        (["catch=maybe"], "catch: 'maybe' is not allowed"),
    ],
)
def test_bad_declarations_are_refused(bench: Workbench, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bench.plan("arch=mine", *words)


def test_a_template_without_a_place_is_refused(tmp_path: Path) -> None:
    template = "static void {{ function }}(long n) { (void)n; }\n"
    write(tmp_path, {**FILES, "templates/kernels/matmul/host.c.j2": template})
    with pytest.raises(ConfigError, match="has no place for 'own'"):
        Workbench(tmp_path, tmp_path).plan("arch=mine")


def test_assembly_becomes_part_of_the_source(tmp_path: Path) -> None:
    assembly = '.globl own\nown:\n\tret # "quoted" \\n\n'
    write(tmp_path, {**FILES, "templates/own.s": assembly})
    words = ("arch=mine", "arch.micro_kernels.own_4x8.file=own.s")
    plan = Workbench(tmp_path, tmp_path).plan(*words)
    assert '    "\\tret # \\"quoted\\" \\\\n\\n"' in plan.text
    assert '    ".hidden own\\n"' in plan.text
    (item,) = plan.outputs["source"]["sources"]
    assert "own.s" in item.source.origins
    assert "own.s" not in item.source.files


CORE_WORDS = ("pipeline=core", "target.sources=[core]")


@pytest.mark.parametrize(
    ("arch", "name"), [("a2a3", "cube_16x16x16"), ("a5", "cube_16x16x16"), ("mppa", "mma_8x8xf32")]
)
def test_accelerators_catch_the_tiles_of_their_matrix_units(
    arch: str, name: str, bench: Workbench
) -> None:
    plan = bench.plan(*CORE_WORDS, f"arch={arch}")
    assert plan.outputs["catching"]["caught"] == {"multiply": {"caught": name, "not caught": {}}}
    assert f"{name}(whole, rows, lda, columns, ldb, to, ldc);" in plan.text
    off = bench.plan(*CORE_WORDS, f"arch={arch}", "catch=off")
    assert "#define UNIT KL_UNIT_VECTOR" in off.text
    double = bench.plan(*CORE_WORDS, f"arch={arch}", "workload.dtype=float64")
    assert "it computes float64" not in str(double.outputs["catching"]["caught"])
    assert double.outputs["catching"]["caught"]["multiply"]["not caught"] == {
        name: "it computes float32, and the step is float64"
    }
    tiny = bench.plan(*CORE_WORDS, f"arch={arch}", "workload.sizes={M: 16, N: 4, K: 16}")
    reason = tiny.outputs["catching"]["caught"]["multiply"]["not caught"][name]
    assert reason.endswith("and those of the step n=4")
