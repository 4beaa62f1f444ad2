"""Editors find a command for every source, whatever was built so far."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from demo_kernel import KERNEL
from test_programs import declare

from kernloom.base.places import Places, share_folder
from kernloom.build import compile_commands
from kernloom.build.builder import Builder
from kernloom.build.compile_commands import write_compile_commands
from kernloom.build.shared_cache import SharedCache
from kernloom.plan.artifact import COMMANDS, Artifact
from parts import needs

Kernel = Callable[..., Artifact]


def entries(places: Places) -> dict[Path, dict[str, Any]]:
    listed = json.loads((places.build / COMMANDS).read_text())
    return {Path(entry["directory"], entry["file"]): entry for entry in listed}


def check(entry: dict[str, Any]) -> int:
    command = [*entry["arguments"], "-fsyntax-only"]
    return subprocess.run(command, cwd=entry["directory"], capture_output=True).returncode


def test_every_source_below_native_is_there_after_one_kernel(
    kernel: Kernel, places: Places
) -> None:
    needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc")
    Builder(places).build([kernel()])
    native = {path: e for path, e in entries(places).items() if "native" in path.parts}
    folder = share_folder() / "native"
    assert native.keys() == {*folder.rglob("*.c"), *folder.rglob("*.cpp")}
    # Parsing all of C++ takes long: one file of each folder shows that the flags are right.
    of_folders = {(path.parent, path.suffix): entry for path, entry in native.items()}
    for entry in of_folders.values():
        assert check(entry) == 0, entry


def test_a_project_s_programs_are_there_whatever_their_kind_and_language(
    kernel: Kernel, tmp_path: Path
) -> None:
    needs("g++")
    project = tmp_path / "project"
    places = Places(share_folder(), project, tmp_path / "build", tmp_path / "store.db")
    cxx = {"language": "c++", "sources": ["*.cpp"]}
    declare(project, "one", {"a.cpp": "#include <string>\n"}, name="one", kind="archive", **cxx)
    declare(project, "two", {"b.c": "int b;\n"}, name="two", kind="objects", sources=["b.c"])
    Builder(places).build([kernel()])
    for name in ("one/a.cpp", "two/b.c"):
        assert check(entries(places)[project / "native" / name]) == 0
    # What comes later is found by the next build.
    declare(project, "three", {"c.c": ""}, name="three", kind="objects", sources=["c.c"])
    Builder(places).build([kernel(text=KERNEL.replace("2.0f", "3.0f"))])
    assert project / "native/three/c.c" in entries(places)


def test_compilers_are_not_asked_again_while_nothing_changes(
    kernel: Kernel, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_compile_commands(places, [])
    known = entries(places)

    def never(places: Places) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(compile_commands, "native_commands", never)
    Builder(places).build([kernel()])
    assert known.items() <= entries(places).items()


def test_a_broken_declaration_does_not_fail_the_build_of_a_kernel(
    kernel: Kernel, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    declare(project, "bad", {}, name="bad", kind="nothing", sources=[])
    places = Places(share_folder(), project, tmp_path / "build", tmp_path / "store.db")
    artifact = kernel()
    assert Builder(places).build([artifact])[artifact.key].ok


def test_kernels_that_fail_or_are_fetched_are_there(
    kernel: Kernel, places: Places, tmp_path: Path
) -> None:
    bad = kernel(text="void nothing(void) { return 1 }\n")
    outcome = Builder(places).build([bad])[bad.key]
    assert not outcome.ok
    assert outcome.source in entries(places) and check(entries(places)[outcome.source]) != 0
    good, shared = kernel(), SharedCache.at("shared", tmp_path)
    for _ in range(2):
        path = Builder(places, shared=shared).build([good])[good.key].path
        assert path.with_name(good.main) in entries(places)
        shutil.rmtree(places.build / "kernels")
        write_compile_commands(places, [])
        assert path.with_name(good.main) not in entries(places)
