"""Plain C files as kernels: read, checked against the config, wrapped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from workbench import Workbench, write

from kernloom.base.errors import ConfigError
from kernloom.plan.csource import read_signature

Project = Callable[..., Workbench]

PLAIN = """
// void scale(int wrong) {
/* void scale(int wrong) { */
#include "parts/steps.h"
#ifndef BLOCK
#error BLOCK is missing
#endif

void scale(long n, float alpha, const float *restrict x, float *y);

void scale(long n, /* how much, (really) */ float alpha,
           const float *restrict x, // in
           float *y)
{
    for (long i = 0; i < n; i++)
        y[i] = STEP(alpha, x[i]) + 0 * BLOCK;
}
"""
FILES = {
    "templates/plain/scale.c": PLAIN,
    "templates/plain/parts/steps.h": '#include "../more.h"\n#define STEP(a, b) MORE(a, b)\n',
    "templates/plain/more.h": "#define MORE(a, b) ((a) * (b))\n",
}
PREFIX = "workload.kernels.scale.sources.host"
WORDS = (
    "workload=toy",
    f"{PREFIX}.template=null",
    f"{PREFIX}.file=plain/scale.c",
    f"{PREFIX}.function=scale",
    f"++{PREFIX}.macros.BLOCK='block * 2'",
)


def test_a_plain_file_is_wrapped_with_its_macros_and_all_it_includes(
    project: Project, tmp_path: Path
) -> None:
    plan = project(FILES).plan(*WORDS, "select.fixed.tile.block=32")
    source = plan.outputs["source"]["sources"][0].source
    assert set(source.files) == {
        "kernel.c",
        "plain/scale.c",
        "plain/parts/steps.h",
        "plain/more.h",
    }
    assert "#define BLOCK 64\n" in source.files["kernel.c"]
    assert set(source.origins) == set(source.files) - {"kernel.c"}
    write(tmp_path / "build", source.files)
    main = tmp_path / "build" / source.main
    subprocess.run(
        ["gcc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", str(main)], check=True
    )


def test_macros_may_use_sizes_and_truth_values(project: Project) -> None:
    bench = project(FILES)
    words = WORDS[:4]
    for value, shown in (("n + 1", "65"), ("'block > 3'", "1"), ("'\"fast\"'", "fast")):
        text = bench.plan(*words, f"++{PREFIX}.macros.BLOCK={value}").text
        assert f"#define BLOCK {shown}\n" in text
    for value, shown in (("7", "7"), ("true", "1"), ("0.5", "0.5")):
        text = bench.plan(*words, f"++{PREFIX}.macros.BLOCK={value}").text
        assert f"#define BLOCK {shown}\n" in text


def test_a_file_called_as_the_wrapper_would_be_stays_itself(project: Project) -> None:
    plain = "void scale(long n, float a, const float *x, float *y) { *y = n * a * *x; }\n"
    bench = project({"templates/kernel.c": plain})
    plan = bench.plan(*WORDS[:2], f"{PREFIX}.file=kernel.c", f"{PREFIX}.function=scale")
    source = plan.outputs["source"]["sources"][0].source
    assert source.files["kernel.c"] == plain
    assert '#include "kernel.c"' in source.files[source.main]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("long n, float a, const float *x", ["takes 3 arguments (n, a, x)", "4 (n, alpha, x, y)"]),
        ("void", ["takes 0 arguments"]),
        ("long n, float *a, const float *x, float *y", ["'a' is a pointer, but 'alpha' is a"]),
        ("long n, float a, float x, float *y", ["'x' is a value, but 'x' is a tensor"]),
        ("long n, float a, const double *x, float *y", ["'x' is const double *", "is float32"]),
        ("long n, float a, const float *x, const float *y", ["'y' is const", "says it is write"]),
        ("float n, float a, const float *x, float *y", ["'n' is float, but 'n' is a size"]),
        ("long n, float a, const float **x, float *y", ["points to pointers"]),
        ("long n, float a, struct v *x, float *y", ["'x' is struct v *"]),
        (
            "long n, float alpha, float *y, const float *x",
            [
                "'y' would get the argument 'x'",
                "takes (n, alpha, y, x), but the kernel declares (n, alpha, x, y)",
                "passed by position",
            ],
        ),
        ("long n, float a, const float *y, float *x", ["'y' would get the argument 'x'"]),
        ("long n, float a, const float *in, float *x", ["'x' would get the argument 'y'"]),
        ("long n, float a, const float *x, ...", ["cannot read the parameter '...'"]),
    ],
)
def test_a_signature_that_does_not_fit_is_named(
    project: Project, parameters: str, said: list[str]
) -> None:
    text = f"#define X BLOCK\nvoid scale({parameters})\n{{\n}}\n"
    message = project({**FILES, "templates/plain/scale.c": text}).refusal(*WORDS)
    for part in said:
        assert part in message


def test_parameters_may_have_names_of_their_own(project: Project) -> None:
    text = "#define X BLOCK\nvoid scale(long count, float a, const float *in, float *out)\n{\n}\n"
    assert project({**FILES, "templates/plain/scale.c": text}).plan(*WORDS).text


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (f"{PREFIX}.function=sclae", ["defines no function 'sclae'", "Did you mean 'scale'?"]),
        (f"{PREFIX}.function=null", ["needs its function's name"]),
        (f"{PREFIX}.file=plain/no.c", ["kernel file 'plain/no.c' does not exist"]),
        (f"{PREFIX}.file=../../x.c", ["leaves"]),
        (f"{PREFIX}.template=kernels/scale.c.j2", ["either a template or a file"]),
        (f"++{PREFIX}.macros.BLOKC=1", ["does not use the macro 'BLOKC'", "mean 'BLOCK'?"]),
        (f"++{PREFIX}.macros.BLOCK=blok", ["unknown name 'blok'", "Did you mean 'block'?"]),
        (f"++{PREFIX}.macros.BLOCK='[1, 2]'", ["[1, 2] is not a plain word or number"]),
        (f"++{PREFIX}.macros.BLOCK='\"1; evil()\"'", ["is not a plain word or number"]),
    ],
)
def test_a_slip_in_the_config_is_named(project: Project, word: str, said: list[str]) -> None:
    message = project(FILES).refusal(*WORDS, word)
    for part in said:
        assert part in message


@pytest.mark.parametrize("include", ["../../../secret.h", "/etc/passwd", "link.h"])
def test_an_include_cannot_leave_the_templates(
    project: Project, tmp_path: Path, include: str
) -> None:
    bench = project({**FILES, "templates/plain/more.h": f'#include "{include}"\n'})
    (tmp_path / "secret.h").write_text("")
    (tmp_path / "project/templates/plain/link.h").symlink_to(tmp_path / "secret.h")
    message = bench.refusal(*WORDS)
    assert f"includes '{include}', which leaves" in message
    assert "more.h" in message


def test_files_may_include_each_other(project: Project) -> None:
    more = '#pragma once\n#include "parts/steps.h"\n'
    plan = project({**FILES, "templates/plain/more.h": more}).plan(*WORDS)
    assert "plain/more.h" in plan.outputs["source"]["sources"][0].source.files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float *x", ("x", "float *", "float32", True, False)),
        ("const float *restrict x", ("x", "const float *", "float32", True, True)),
        ("float const *__restrict__ const x", ("x", "const float *", "float32", True, True)),
        ("double x[]", ("x", "double *", "float64", True, False)),
        ("const float x[static 4]", ("x", "const float *", "float32", True, True)),
        ("const float x[n][n]", ("x", "const void *", "float32", True, True)),
        ("unsigned char *x", ("x", "unsigned char *", "uint8", True, False)),
        ("int64_t x", ("x", "int64_t", "int64", False, False)),
        ("const long long x", ("x", "const long long", "int64", False, True)),
        ("size_t x", ("x", "size_t", "int64", False, False)),
        ("volatile int x", ("x", "int", "int32", False, False)),
    ],
)
def test_reads_parameters(text: str, expected: tuple[object, ...]) -> None:
    source = f"static inline void f({text})\n{{\n}}\n"
    (found,) = read_signature(source, "f", where="f.c", key="k")
    assert (found.name, found.ctype, found.dtype, found.pointer, found.constant) == expected


def test_a_call_is_not_taken_for_the_definition() -> None:
    text = "void g(int n) { if (n) { f(n); } f(n); }\nint f(long m, double *a)\n{\n return 0; }\n"
    assert [p.name for p in read_signature(text, "f", where="f.c", key="k")] == ["m", "a"]


def test_a_file_that_cannot_be_read_as_text_is_named(project: Project, tmp_path: Path) -> None:
    bench = project(FILES)
    (tmp_path / "project/templates/plain/more.h").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"more\.h: cannot be read"):
        bench.plan(*WORDS)
