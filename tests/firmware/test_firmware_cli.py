"""The same workloads on bare-metal parts, through the command line.

tests/recipe/test_recipe_replay.py verifies all of them in single precision.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Project
from parts import BARE_METAL, needs

MATMUL = ["workload=matmul", *(f"workload.sizes.{size}=64" for size in "MNK")]
LONGS = """\
#include <stdint.h>
void longs(long n, const {type} *x, {type} *y)
{{
    for (long i = 0; i < n; i++)
        y[i] = 2 * x[i];
}}
"""


@pytest.fixture(autouse=True)
def everything() -> None:
    needs(*{program for programs in BARE_METAL.values() for program in programs})


def test_counts_are_the_same_when_run_again(sharing_project: Project) -> None:
    words = ["run", "-m", f"target={','.join(BARE_METAL)}", *MATMUL]
    first = sharing_project.json(*words)
    assert first.code == 0, first.stderr + first.stdout
    again = sharing_project.json(*words, "rerun=all")
    counts = [[trial["metrics"]["instructions"] for trial in run.trials] for run in (first, again)]
    assert counts[0] == counts[1]
    # Each multiplication is at least one instruction.
    assert min(counts[0]) > 64**3
    for trial in first.trials:
        assert trial["verified"]
        assert trial["metrics"].keys() == {"instructions", "deterministic"}


@pytest.mark.slow
@pytest.mark.parametrize("part", BARE_METAL)
def test_every_workload_is_verified_in_double_precision(
    sharing_project: Project, part: str
) -> None:
    words = ("check", f"target={part}", "case=small", "workload.dtype=float64")
    done = sharing_project.json(*words)
    assert done.code == 0, done.stderr + done.stdout
    assert len(done.trials) >= 10
    assert all(trial["verified"] for trial in done.trials)


def test_tensors_that_do_not_fit_are_refused_before_building(fresh_project: Project) -> None:
    done = fresh_project.run("run", "target=cortex_m4", "workload=matmul", "case=large")
    assert done.code == 2
    assert "the tensors need 12.0 MiB" in done.stderr
    assert "of its 4.0 MiB of RAM part 'cortex_m4' has 3.5 MiB for them" in done.stderr
    assert not (fresh_project.build / "kernels").exists()


def test_a_missing_emulator_is_named_with_what_installs_it(project: Project) -> None:
    done = project.run("run", "target=riscv_bare", "target.emulator.program=qemu-of-nobody")
    assert done.code == 3
    assert "qemu-of-nobody" in done.stderr
    assert "qemu-system" in done.stderr


def test_a_missing_compiler_is_named_with_what_installs_it(project: Project) -> None:
    done = project.run("run", "target=cortex_m7", "toolchain.tools.cc=gcc-of-nobody")
    assert done.code == 3
    assert "gcc-of-nobody" in done.stderr
    assert "gcc-arm-none-eabi" in done.stderr


@pytest.mark.parametrize("word", ["toolchain=gcc", "arch=native", "arch=riscv_bare"])
def test_what_is_not_for_the_part_is_refused(project: Project, word: str) -> None:
    done = project.run("run", "target=cortex_m7", word)
    assert done.code == 2
    assert f"{word.partition('=')[0]}" in done.stderr


def test_faults_and_hangs_are_trials_among_others(project: Project) -> None:
    project.add("good")
    project.add("bad", "*(volatile int *)0 = 1; y[n - 1] = x[0];")
    project.add("beyond", "y[n] = x[0];")
    project.add("hang", "for (volatile int i = 1; i; i = 1) y[n - 1] = x[0];")
    done = project.json(
        "run", "-m", "workload=bad,beyond,hang,good", "target=cortex_m7", "timeout=2"
    )
    assert done.code == 1
    statuses = {trial["workload"]: trial["status"] for trial in done.trials}
    assert statuses == {
        "bad": "crashed",
        "beyond": "out_of_bounds",
        "hang": "timeout",
        "good": "ok",
    }
    messages = {trial["workload"]: trial["message"] for trial in done.trials}
    assert messages["bad"].startswith("MemManage (data access) for address 0x0")
    assert "buffer 'y' of 4000 bytes, at byte offset 4000" in messages["beyond"]


def test_data_that_does_not_fit_beside_the_firmware_does_not_build(project: Project) -> None:
    project.add("much", "static volatile float much[1 << 20]; y[n - 1] = x[0] + much[n];")
    done = project.json("run", "workload=much", "target=riscv_bare")
    assert done.trial["status"] == "build_failed"
    assert "region `ram' overflowed" in done.trial["message"]


def test_intermediates_are_kept_on_request(project: Project) -> None:
    done = project.json("run", "workload=sum", "case=small", "target=cortex_m4", "build.keep=true")
    assert done.code == 0, done.stderr + done.stdout
    folder = project.build / "kernels" / done.trial["artifacts"][0]["key"]
    assert {"kernel.i", "kernel.s", "kernel.o", "kernel.elf"} <= {p.name for p in folder.iterdir()}


def test_images_are_the_same_wherever_they_are_built(project: Project, tmp_path: Path) -> None:
    images = []
    for place in (project, Project(tmp_path / "elsewhere")):
        done = place.json("run", "workload=axpy", "case=small", "target=cortex_m7")
        assert done.code == 0, done.stderr + done.stdout
        folder = place.build / "kernels" / done.trial["artifacts"][0]["key"]
        images.append((folder.name, (folder / "kernel.elf").read_bytes()))
    assert images[0] == images[1]


@pytest.mark.parametrize(("type", "status"), [("int64_t", "ok"), ("long", "build_failed")])
def test_a_long_is_not_64_bits_everywhere(project: Project, type: str, status: str) -> None:
    project.add("longs")
    project.write("templates/longs.c", LONGS.format(type=type))
    kernel = project.folder / "configs/kernel/longs.yaml"
    text = kernel.read_text(encoding="utf-8")
    text = text.replace("shape: [n]}", "shape: [n], dtype: int64}")
    kernel.write_text(text, encoding="utf-8")
    workload = project.folder / "configs/workload/longs.yaml"
    text = workload.read_text(encoding="utf-8")
    workload.write_text(text.replace("{shape: [n]}", "{shape: [n], dtype: int64}"))
    done = project.json("run", "-m", "workload=longs", "target=cortex_m4,riscv_bare")
    assert [trial["status"] for trial in done.trials] == [status, "ok"]
