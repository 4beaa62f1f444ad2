"""Other CPUs under QEMU: instructions are counted exactly, and what they cannot do is refused.

tests/recipe/test_recipe_replay.py verifies every workload on them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Project, listing
from parts import needs

PROGRAMS = {
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "aarch64_sve": ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "riscv64": ("riscv64-linux-gnu-gcc", "qemu-riscv64"),
    "riscv64_rvv": ("clang-19", "ld.lld-19", "riscv64-linux-gnu-gcc", "qemu-riscv64"),
    "host_counted": ("qemu-x86_64",),
}
"""Target -> what must be installed for it."""
CUBE = ("workload=matmul", *(f"workload.sizes.{name}=64" for name in "MNK"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One for all tests here: they build the same runners."""
    project = Project(tmp_path_factory.mktemp("emulated"))
    project.share_artifacts()
    return project


def counts(project: Project, *words: str) -> list[int]:
    done = project.json("run", "-m", *CUBE, *words)
    assert done.code == 0, done.stderr + done.stdout
    return [trial["metrics"]["instructions"] for trial in done.trials]


@pytest.mark.parametrize("target", PROGRAMS)
def test_counts_are_the_same_every_time_and_no_time_is_reported(
    project: Project, target: str
) -> None:
    needs(*PROGRAMS[target])
    first, second = (
        project.json("run", *CUBE, f"target={target}", "rerun=all").trial for _ in range(2)
    )
    assert first["verified"] and second["verified"]
    assert first["metrics"] == second["metrics"]
    assert first["metrics"].keys() == {"instructions", "deterministic"}
    assert first["metrics"]["deterministic"] == ["instructions"]
    assert first["metrics"]["instructions"] > 64**3 / 64


def test_vectors_need_fewer_instructions_than_single_elements(project: Project) -> None:
    needs(*PROGRAMS["aarch64"], *PROGRAMS["riscv64_rvv"])
    neon, scalar = counts(project, "target=aarch64", "select.fixed.vectorize.lanes=4,1")
    assert neon < scalar / 2
    rvv, scalar = counts(project, "target=riscv64_rvv,riscv64")
    assert rvv < scalar / 2


@pytest.mark.parametrize("target", ["aarch64_sve", "riscv64_rvv"])
def test_longer_vectors_need_fewer_instructions(project: Project, target: str) -> None:
    needs(*PROGRAMS[target])
    found = counts(project, f"target={target}", "arch.vector_bits=128,256,512,1024")
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("target", ["aarch64_sve", "riscv64_rvv"])
def test_a_vector_length_that_does_not_exist_is_refused_with_those_that_do(
    project: Project, target: str
) -> None:
    done = project.run("run", f"target={target}", "arch.vector_bits=300")
    assert done.code == 2
    assert "arch.vector_bits" in done.stderr
    assert "has no vectors of 300 bits" in done.stderr
    assert "Allowed: 128, 256, 512, 1024" in done.stderr


def test_a_cpu_without_the_instructions_is_a_crash_that_leaves_no_core_file(
    project: Project,
) -> None:
    needs(*PROGRAMS["aarch64_sve"])
    before = listing(project.folder).keys()
    limits = ("sh", "-c", 'ulimit -c unlimited 2>/dev/null; exec "$@"', "sh")
    args = "target.emulator.args=[-L,/usr/aarch64-linux-gnu,-cpu,cortex-a57]"
    done = project.json("run", *CUBE, "target=aarch64_sve", args, before=limits)
    assert done.code == 1
    assert done.trial["status"] == "crashed"
    assert "SIGILL" in done.trial["message"]
    added = listing(project.folder).keys() - before
    assert not [path for path in added if path.endswith(".core")]


def test_a_cpu_that_does_not_exist_is_explained_in_the_emulators_own_words(
    project: Project,
) -> None:
    needs(*PROGRAMS["aarch64"])
    done = project.json("run", "workload=axpy", "target=aarch64", "target.emulator.args=[-cpu,z80]")
    assert done.code == 1
    assert done.trial["status"] == "crashed"
    assert "unable to find CPU model 'z80'" in done.trial["message"]


def test_a_missing_emulator_is_unavailable_with_how_to_get_it(project: Project) -> None:
    needs("aarch64-linux-gnu-gcc")
    done = project.run("run", "target=aarch64", "target.emulator.program=qemu-pdp11")
    assert done.code == 3
    assert "no emulator 'qemu-pdp11' on the PATH" in done.stderr
    assert "qemu-user" in done.stderr


def test_an_emulator_that_is_too_old_is_unavailable(project: Project, tmp_path: Path) -> None:
    needs("aarch64-linux-gnu-gcc")
    old = tmp_path / "qemu-aarch64"
    old.write_text("#!/bin/sh\necho 'qemu-aarch64 version 6.2.0'\n")
    old.chmod(0o755)
    done = project.run("run", "target=aarch64", f"target.emulator.program={old}")
    assert done.code == 3
    assert "version 6.2.0, but 7.2 or newer is needed" in done.stderr


def test_what_an_emulator_does_not_emulate_is_refused_by_name(project: Project) -> None:
    needs("qemu-x86_64", "qemu-aarch64", "aarch64-linux-gnu-gcc")
    done = project.run("run", "target=host_counted", "arch=x86_64_v4")
    assert done.code == 3
    assert "needs avx512f" in done.stderr
    assert "qemu-x86_64 of target 'host_counted' does not emulate" in done.stderr
    done = project.run("run", "target=aarch64", "arch=x86_64_v3")
    assert done.code == 3
    assert "needs x86_64" in done.stderr


def test_a_toolchain_for_another_cpu_is_refused(project: Project) -> None:
    needs(*PROGRAMS["aarch64"])
    done = project.run("run", "target=aarch64", "toolchain=gcc")
    assert done.code == 2
    assert "compiles for" in done.stderr
    assert "arch 'aarch64' is aarch64" in done.stderr


def test_threads_are_refused_for_they_are_not_counted_exactly(project: Project) -> None:
    needs(*PROGRAMS["aarch64"])
    words = (*CUBE, "target=aarch64", "select.fixed.parallelize.threads=2")
    assert "threads <= cores" in project.run("run", *words).stderr
    trial = project.json("run", *words, "arch.cores=2").trial
    assert trial["status"] == "refused"
    assert "has no 'threads'" in trial["message"]


def test_targets_are_listed_with_what_is_missing(project: Project) -> None:
    listed = {target["name"]: target for target in project.json("targets").document}
    assert PROGRAMS.keys() <= listed.keys()
    for name in PROGRAMS:
        target = listed[name]
        assert target["available"] or (target["reason"] and target["hint"])


def test_the_table_shows_counts(project: Project) -> None:
    needs(*PROGRAMS["aarch64"])
    done = project.run("run", *CUBE, "target=aarch64")
    assert "instructions" in done.stdout
    assert "GFLOP/s" not in done.stdout


HEAVY = (
    "for (long k = 0; k < 50; k++) for (long i = 0; i < n; i++) y[i] = k ? y[i] + x[i] / 25 : 0;"
)
TABLE = f"""\
    for (int i = 0; i < known; i++)
        if (!memcmp(seen[i], x, sizeof seen[i])) {{
            memcpy(y, kept[i], sizeof kept[i]);
            return;
        }}
    {HEAVY.replace("25", "24.5f")}
    if (known < 4) {{
        memcpy(seen[known], x, sizeof seen[0]);
        memcpy(kept[known++], y, sizeof kept[0]);
    }}"""


def test_results_that_a_kernel_keeps_do_not_lower_its_count(project: Project) -> None:
    needs(*PROGRAMS["aarch64"])
    head = "#include <string.h>\nstatic float seen[4][256], kept[4][256];\nstatic int known;"
    project.add("honest", HEAVY.replace("25", "24.5f"), n=256)
    project.add("table", TABLE, n=256, head=head)
    words = ("run", "-m", "target=aarch64", "workload=honest,table")
    honest, table = project.json(*words).trials
    assert honest["status"] == table["status"] == "ok"
    assert table["metrics"]["instructions"] > honest["metrics"]["instructions"]
