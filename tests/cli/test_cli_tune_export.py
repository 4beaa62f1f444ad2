"""Exported libraries: with any name of a workload, built and checked by any compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from command_line import Project
from parts import needs

KERNEL = """\
name: inner
arguments:
  last: {kind: size}
  same: {kind: size}
  new: {kind: tensor, shape: [last, same]}
  args: {kind: tensor, access: write, shape: [last, same]}
  "not": {kind: scalar, dtype: float32}
sources:
  host: {file: inner.c, function: inner, macros: {BY: by}}
tunables: {unroll: {by: {values: [1, 2], "off": 1}}}
"""
SOURCE = """\
void inner(long rows, long columns, const float *x, float *y, float factor)
{
    for (long i = 1; i + 1 < rows; i++)
        for (long j = 0; j + BY < columns; j++)
            y[i * columns + j] = factor * x[i * columns + j];
}
"""
WORKLOAD = """\
defaults:
  - /kernel@kernels.inner: inner
  - _self_
name: {name}
sizes: {{last: 12, same: 10}}
scalars: {{"not": 3}}
tensors:
  new: {{shape: [last, same]}}
  args: {{shape: [last, same]}}
steps:
  call: {{kernel: inner}}
golden: {{args: 3 * new}}
region: {{args: ["1:last-1", "0:same-2"]}}
cases:
  "small-1": {{sizes: {{last: 5}}}}
  small_1: {{sizes: {{last: 7}}}}
"""


def run(*words: str, folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.parametrize("name", ["check", "test", "3d-blur.v2"])
def test_any_name_and_only_the_region_counts(project: Project, name: str) -> None:
    needs("gcc", "g++", "clang")
    project.write("configs/kernel/inner.yaml", KERNEL)
    project.write("templates/inner.c", SOURCE)
    project.write(f"configs/workload/{name}.yaml", WORKLOAD.format(name=name))
    done = project.run("tune", f"workload={name}", "leaders=1", "stages=1", "export=lib")
    assert done.code == 0, done
    folder = project.folder / "lib"
    for compiler in ("gcc -std=c11 -Wall -Werror", "clang"):
        run("env", f"CC={compiler}", "sh", "build.sh", folder=folder)
        told = run("./test", folder=folder)
        assert "ok       small-1: args" in told
        assert "all right" in told
    header = next(path.name for path in folder.glob("*.h") if path.name != "check.h")
    (folder / "user.cpp").write_text(f'#include <cmath>\n#include "{header}"\nint main() {{}}\n')
    run("g++", "-I.", "user.cpp", "-o", "user", folder=folder)
    # The elements outside of the region are never written, and one inside is damaged.
    data = folder / "data" / "default.args.expected.bin"
    numbers = bytearray(data.read_bytes())
    numbers[8 * 11 : 8 * 12] = numbers[8 * 12 : 8 * 13]
    data.write_bytes(numbers)
    damaged = subprocess.run(["./test"], cwd=folder, capture_output=True, text=True)
    assert damaged.returncode == 1
    assert "WRONG: args[11]" in damaged.stdout
    if shutil.which("cmake"):
        run("cmake", "-B", "build", ".", folder=folder)
        run("cmake", "--build", "build", folder=folder)


TAILED_KERNEL = """\
name: tailed
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  host: {file: tailed.c, function: tailed, macros: {BLOCK: block}}
tunables: {tile: {block: {values: [8, 32], "off": 8}}}
"""
TAILED = """\
void tailed(long n, const float *x, float *y)
{
    volatile float slow = 0;
    for (long i = 0; i < (BLOCK == 8 ? 100000 : 0); i++) slow += 1;
    for (long i = 0; i < n; i++) y[i] = 2 * x[i];
    if (BLOCK == 32 && n == 1001) y[1000] = 7;
}
"""
TAILED_WORKLOAD = """\
defaults: [{/kernel@kernels.tailed: tailed}, _self_]
name: tailed
sizes: {n: 4096}
tensors: {x: {shape: [n]}, y: {shape: [n]}}
steps: {call: {kernel: tailed}}
golden: {y: 2 * x}
cases: {odd: {sizes: {n: 1001}}}
"""


def test_what_is_exported_is_right_on_every_case_whatever_sizes_were_tuned(
    project: Project,
) -> None:
    project.write("configs/kernel/tailed.yaml", TAILED_KERNEL)
    project.write("configs/workload/tailed.yaml", TAILED_WORKLOAD)
    project.write("templates/tailed.c", TAILED)
    # Known for another shape, on which it is right.
    one = project.json(
        "run", "workload=tailed", "workload.sizes.n=512", "select.fixed.tile.block=32"
    )
    assert one.trial["status"] == "ok"
    words = ("tune", "workload=tailed", "workload.sizes.n=2048", "racing=quick", "export=library")
    done = project.run(*words)
    assert done.code == 0, done.stderr
    assert "not the winner: wrong on case odd: y[1000] is 7" in done.stdout
    assert "is verified on the tuned sizes, default, odd" in done.stdout
    assert f"left out: the parameters of trial {one.trial['id']}: wrong on case odd" in done.stderr
    library = project.folder / "library"
    needs("gcc")
    run("sh", "build.sh", folder=library)
    assert "all right" in run("./test", folder=library)
    refused = project.run("tune", "workload=axpy", "export=library")
    assert refused.code == 2
    assert "library is an export of workload 'tailed', not of 'axpy'" in refused.stderr
