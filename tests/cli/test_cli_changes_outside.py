"""Files outside a project that change before, while and after its kernels are built."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from command_line import Project

SCALED = "for (long i = 0; i < n; i++) y[i] = SCALE * x[i];"
CALLS = "for (long i = 0; i < n; i++) y[i] = scaled(x[i]);"


def compiler(project: Project, script: str) -> str:
    """A word that has kernels built by a script that starts gcc."""
    path = project.write("compiler", f'#!/bin/sh\nhere=$(dirname "$0")\n{script}\nexec gcc "$@"\n')
    path.chmod(0o755)
    return f"toolchain.tools.cc={path}"


def library(path: Path, text: str, *flags: str) -> None:
    source = path.with_suffix(".c")
    source.write_text(text)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", path, *flags], check=True)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_header_that_changes_while_a_kernel_is_built_leaves_no_wrong_trial(
    project: Project,
) -> None:
    header = project.write("include/scale.h", "#define SCALE 2\n")
    project.add("twice", SCALED, head="#include <scale.h>")
    change = 'mkdir $here/once 2>/dev/null && echo "#define SCALE 3" > $here/include/scale.h'
    words = [
        "workload=twice",
        "measure=quick",
        f"toolchain.extra_flags=[-I{header.parent}]",
        compiler(project, f'case "$*" in *kernel.so*) {change} ;; esac'),
    ]
    first = project.json("run", *words)
    assert first.trial["status"] == "wrong", first.stderr
    header.write_text("#define SCALE 2\n")
    second = project.json("run", *words)
    assert second.trial["status"] == "ok", second.stderr
    assert second.trial["id"] != first.trial["id"]
    header.write_text("#define SCALE 3\n")
    third = project.json("run", *words)
    assert (third.trial["id"], third.trial["status"]) == (first.trial["id"], "wrong")
    assert third.trial["artifacts"] == [
        {**artifact, "cached": True} for artifact in first.trial["artifacts"]
    ]


def test_a_build_folder_that_is_deleted_while_it_is_used_is_made_again(project: Project) -> None:
    project.add("twice")
    change = "mkdir $here/once 2>/dev/null && rm -rf $here/.kernloom/build"
    script = compiler(project, f'case "$*" in *kernel.so*) {change} ;; esac')
    done = project.json("run", "workload=twice", "measure=quick", script)
    assert done.code == 0, done.stderr
    assert done.trial["status"] == "ok"
    assert "Traceback" not in done.stderr
    assert list((project.build / "tmp").iterdir()) == []


def test_a_build_folder_that_is_deleted_all_the_time_is_a_clear_error(project: Project) -> None:
    project.add("twice")
    script = compiler(
        project, 'case "$*" in *kernel.so*) rm -rf $here/.kernloom/build; exit 0 ;; esac'
    )
    done = project.json("run", "workload=twice", "measure=quick", script)
    assert done.code == 1
    assert "Traceback" not in done.stderr
    assert f"{project.build}" in done.stderr


def test_a_librarys_own_library_that_changes_is_measured_again(project: Project) -> None:
    folder = project.folder / "lib"
    folder.mkdir()
    text = "float factor(void) {{ return {}; }}\n"
    library(folder / "libfactor.so", text.format(2))
    library(
        folder / "libscale.so",
        "float factor(void);\nfloat scaled(float x) { return factor() * x; }\n",
        *(f"-L{folder}", "-lfactor", f"-Wl,-rpath,{folder}"),
    )
    project.add("twice", CALLS, head="float scaled(float);")
    flags = f"toolchain.extra_flags=[-L{folder},-lscale,'-Wl,-rpath,{folder}']"
    words = ["workload=twice", "measure=quick", "workload.allow=[scaled,libscale.so]", flags]
    assert project.json("run", *words).trial["status"] == "ok"
    library(folder / "libfactor.so", text.format(3))
    plan = project.json("plan", *words).document
    assert any("libfactor.so" in artifact["reason"] for artifact in plan["artifacts"])
    assert project.json("run", *words).trial["status"] == "wrong"


def test_a_library_found_by_the_loaders_search_path_is_measured_again(project: Project) -> None:
    for name, factor in (("one", 2), ("two", 3)):
        (project.folder / name).mkdir()
        text = f"float scaled(float x) {{ return {factor} * x; }}\n"
        library(project.folder / name / "libscale.so", text)
    project.add("twice", CALLS, head="float scaled(float);")
    flags = f"toolchain.extra_flags=[-L{project.folder}/one,-lscale]"
    words = ["workload=twice", "measure=quick", "workload.allow=[scaled,libscale.so]", flags]
    trials = [
        project.json("run", *words, env={"LD_LIBRARY_PATH": str(project.folder / name)}).trial
        for name in ("one", "two", "one")
    ]
    assert [trial["status"] for trial in trials] == ["ok", "wrong", "ok"]
    assert trials[0]["id"] == trials[2]["id"]
