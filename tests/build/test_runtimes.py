"""Runners: one artifact for all arches that differ only by data, found under stable paths."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from demo_kernel import shipped
from small_tree import places_in, small_tree

from kernloom.base.errors import UnavailableError
from kernloom.base.places import Places
from kernloom.build.builder import Builder
from kernloom.build.built_for import BuiltFor
from kernloom.build.programs import Programs
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact

MAIN = """\
#include "kernloom/answer.h"
#include <stdio.h>
int main(void)
{
    printf("%d", ANSWER);
    return 0;
}
"""
DECLARATION = """\
name: runner
kind: executable
sources: ["*.c"]
include: [../include]
link: [-lm]
varies_by: [isa, variant]
"""
Runner = Callable[..., Artifact]


@pytest.fixture
def share(tmp_path: Path, compiler_facts: Path) -> Path:
    """A source tree with a runner of a few lines."""
    files = {
        "runner/main.c": MAIN,
        "runner/program.yaml": DECLARATION,
        "include/kernloom/answer.h": "#define ANSWER 42\n",
    }
    return small_tree(tmp_path / "share tree", files, compiler_facts)


@pytest.fixture
def places(share: Path) -> Places:
    return places_in(share)


@pytest.fixture
def runner(gcc: Toolchain, cache: Path, share: Path) -> Runner:
    def make(
        arch: str = "x86_64_v2", variant: str = "release", toolchain: Toolchain = gcc
    ) -> Artifact:
        detected = detect(toolchain, cache)
        chosen = shipped(Arch, "arch", arch)
        return Programs([share]).artifact("runner", BuiltFor(toolchain, chosen, variant, detected))

    return make


def run(path: Path) -> str:
    return subprocess.run([path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("variant", ["release", "asan"])
def test_a_runner_is_built_and_found_under_its_stable_path(
    runner: Runner, places: Places, any_toolchain: Toolchain, variant: str
) -> None:
    artifact = runner(variant=variant, toolchain=any_toolchain)
    outcome = Builder(places).build([artifact])[artifact.key]
    assert outcome.ok, outcome.message
    link = places.build / "lib" / "x86_64_v2" / variant / "none" / "runner"
    assert link.is_symlink() and not link.readlink().is_absolute()
    assert link.resolve() == places.build.resolve() / "runtimes" / artifact.key / "runner"
    assert run(link) == "42"


def test_arches_that_differ_only_by_data_share_one_artifact(runner: Runner, places: Places) -> None:
    artifacts = [runner(arch) for arch in ("x86_64_v2", "x86_64_v3", "x86_64_v4")]
    assert len(Builder(places).build(artifacts)) == 1
    links = [places.build / "lib" / a.arch / "release" / "none" / "runner" for a in artifacts]
    assert len({link.resolve() for link in links}) == 1


def test_a_lost_link_is_made_again(runner: Runner, places: Places) -> None:
    artifact = runner()
    Builder(places).build([artifact])
    shutil.rmtree(places.build / "lib")
    assert Builder(places).build([artifact])[artifact.key].cached
    assert run(places.build / "lib" / "x86_64_v2" / "release" / "none" / "runner") == "42"


def test_a_changed_header_of_the_runner_is_named(
    runner: Runner, places: Places, share: Path
) -> None:
    Builder(places).build([runner()])
    (share / "native/include/kernloom/answer.h").write_text("#define ANSWER 43\n")
    said = Builder(places).state(runner()).explanation
    assert said.kind == "header"
    assert said.text == (
        "native/include/kernloom/answer.h:1: '#define ANSWER 42' -> '#define ANSWER 43'"
    )


def test_the_lock_of_an_editor_is_no_part_of_a_runner(runner: Runner, share: Path) -> None:
    before = runner().key
    (share / "native/runner/.#main.c").symlink_to("somebody@somewhere.1234:5678")
    assert runner().key == before


def test_the_systems_headers_are_part_of_a_runner(runner: Runner) -> None:
    (main,) = runner().steps.values()
    assert "stdio.h" in main.headers


def test_editors_find_the_runners_real_sources(runner: Runner, places: Places, share: Path) -> None:
    Builder(places).build([runner()])
    entries = json.loads((places.build / "compile_commands.json").read_text())
    assert [Path(e["directory"], e["file"]) for e in entries] == [share / "native/runner/main.c"]
    arguments = entries[0]["arguments"]
    done = subprocess.run(
        [*arguments, "-fsyntax-only"], cwd=entries[0]["directory"], capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_a_share_without_runner_is_explained(
    gcc: Toolchain, arch: Arch, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="there is no program 'runner'"):
        Programs([tmp_path]).artifact("runner", BuiltFor(gcc, arch, "release", detect(gcc, cache)))


def scons(share: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "SCons", "-Q", *options],
        cwd=share,
        capture_output=True,
        text=True,
        timeout=120,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment,
    )


def test_plain_scons_builds_every_runner_and_then_nothing(share: Path) -> None:
    first = scons(share)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "gcc" in first.stdout and "-c -o main.o native/runner/main.c" in first.stdout
    for variant in ("release", "asan"):
        assert run(share / "build" / "lib" / "x86_64_v3" / variant / "none" / "runner") == "42"
    second = scons(share)
    assert second.returncode == 0
    *left_out, last = second.stdout.splitlines()
    assert last == "scons: `all' is up to date."
    # Nobody has every vendor's compiler.
    assert all(line.startswith(("left out: ", "  ")) for line in left_out)
    assert {path.name for path in share.iterdir()} == {
        *("SConstruct", "build", "configs", "engine", "native")
    }


def test_an_installed_package_finds_its_own_files(share: Path, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    shutil.move(share / "engine", site)
    shutil.move(share, site / "kernloom" / "share")
    file = site / "kernloom" / "share" / "SConstruct"
    done = scons(tmp_path, "-f", str(file), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    build = tmp_path / "cache" / "kernloom" / "build"
    assert run(build / "lib" / "x86_64_v3" / "release" / "none" / "runner") == "42"
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "site-packages"}


def test_plain_scons_tells_what_does_not_compile(share: Path) -> None:
    (share / "native/runner/main.c").write_text("int main(void) { return nothing; }\n")
    done = scons(share, "-k")
    assert done.returncode != 0
    assert "native/runner/main.c:1" in done.stderr and "nothing" in done.stderr


def test_extra_flags_of_kernels_leave_the_runner_alone(runner: Runner, gcc: Toolchain) -> None:
    assert runner(toolchain=replace(gcc, extra_flags=("-O3",))).key == runner().key
