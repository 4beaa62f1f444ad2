"""Compilers behind scripts, and libraries behind libraries: a change there is noticed and named."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from demo_kernel import make_source

from kernloom.base.places import Places
from kernloom.build.builder import Builder
from kernloom.build.compile import kernel_artifact, libraries_last
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact

USES = "int foo(void);\nint kl_entry(void) { return foo(); }\n"


@pytest.fixture
def declared(arch: Arch, tmp_path: Path) -> Callable[[Toolchain], Artifact]:
    """The demo kernel, as a command of its own would plan it."""

    def make(toolchain: Toolchain, **source: str) -> Artifact:
        found = detect(toolchain, tmp_path / "cache")
        return kernel_artifact(make_source(**source), toolchain, arch, "release", found)

    return make


def shared(path: Path, text: str, *flags: str) -> None:
    source = path.with_suffix(".c")
    source.write_text(text)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", path, *flags], check=True)


def foo_and_bar(folder: Path) -> None:
    """libfoo.so, which needs libbar.so beside it."""
    shared(folder / "libbar.so", "int bar(void) { return 1; }\n")
    flags = (f"-L{folder}", "-lbar", f"-Wl,-rpath,{folder}")
    shared(folder / "libfoo.so", "int bar(void);\nint foo(void) { return bar(); }\n", *flags)


def test_a_file_that_a_wrapper_names_is_a_part_of_the_compiler(
    declared: Callable[..., Artifact], tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    flags = tmp_path / "site.flags"
    flags.write_text("-O1\n")
    toolchain = wrapped(f'exec gcc "$@" $(cat {flags})')
    before = declared(toolchain)
    assert declared(toolchain).key == before.key
    flags.write_text("-O1 -g\n")
    after = declared(toolchain)
    assert after.identity.digest != before.identity.digest
    flags.write_text("-O1\n")
    assert declared(toolchain).key == before.key


@pytest.mark.parametrize("flag", ["-O0", "-fno-inline", "-DMORE", "-Wl,-z,now"])
def test_flags_that_a_wrapper_finds_by_itself_are_noticed(
    declared: Callable[..., Artifact],
    places: Places,
    tmp_path: Path,
    wrapped: Callable[..., Toolchain],
    flag: str,
) -> None:
    flags = tmp_path / "site.flags"
    flags.touch()
    toolchain = wrapped('exec gcc "$@" $(cat "$(dirname "$0")/site.flags")')
    before = declared(toolchain)
    Builder(places).build([before])
    flags.write_text(flag)
    after = declared(toolchain)
    assert after.key != before.key
    said = Builder(places).state(after).explanation
    assert said.kind == "compiler" and "the script that starts it" in said.text
    flags.write_text("")
    assert declared(toolchain).key == before.key


def test_a_wrapper_that_changes_what_the_compiler_made_is_noticed(
    declared: Callable[..., Artifact], tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    after = tmp_path / "after"
    after.write_text("true\n")
    script = """
gcc "$@" || exit
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
[ -z "$out" ] || . "$(dirname "$0")/after"
"""
    toolchain = wrapped(script)
    before = declared(toolchain)
    assert declared(toolchain).key == before.key
    after.write_text("strip $out\n")
    assert declared(toolchain).key != before.key


def test_the_same_wrapper_elsewhere_gives_the_same_key(
    gcc: Toolchain, arch: Arch, tmp_path: Path
) -> None:
    """Also if it names itself in the commands that it starts."""
    keys = set()
    for name in ("one", "another place"):
        path = tmp_path / name / "compiler"
        path.parent.mkdir()
        path.write_text('#!/bin/sh\nexec gcc "$@" -I"$(dirname "$0")/include"\n')
        path.chmod(0o755)
        toolchain = replace(gcc, tools={"cc": str(path)})
        found = detect(toolchain, tmp_path / "cache")
        keys.add(kernel_artifact(make_source(), toolchain, arch, "release", found).key)
    assert len(keys) == 1


def test_the_compiler_that_a_wrapper_starts_is_in_its_identity(
    declared: Callable[..., Artifact], tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    real = tmp_path / "behind" / "gcc"
    real.parent.mkdir()
    shutil.copy(str(shutil.which("gcc")), real)
    asked = ["gcc", "-print-prog-name=cc1"]
    proper = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout).parent
    toolchain = wrapped(f'exec "$(dirname "$0")/behind/gcc" -B{proper}/ "$@"')
    before = declared(toolchain)
    assert "driver" in before.identity.parts
    with real.open("ab") as file:
        file.write(b"another build of it")
    assert declared(toolchain).identity.digest != before.identity.digest


def test_a_compiler_without_wrapper_is_remembered(gcc: Toolchain, tmp_path: Path) -> None:
    found = detect(gcc, tmp_path)
    assert not found.opaque and "driver" not in found.parts


def test_a_librarys_own_library_is_in_the_key(
    declared: Callable[..., Artifact], gcc: Toolchain, places: Places, tmp_path: Path
) -> None:
    foo_and_bar(tmp_path)
    flags = (f"-L{tmp_path}", "-lfoo", f"-Wl,-rpath,{tmp_path}")
    toolchain = replace(gcc, extra_flags=flags)
    before = declared(toolchain, text=USES)
    assert {"libfoo.so", "libbar.so"} <= before.linked.keys()
    assert Builder(places).build([before])[before.key].ok
    shared(tmp_path / "libbar.so", "int bar(void) { return 2; }\n")
    after = declared(toolchain, text=USES)
    assert after.key != before.key
    assert "libbar.so" in Builder(places).state(after).explanation.text


def test_a_library_that_the_loader_would_find_elsewhere_is_noticed(
    declared: Callable[..., Artifact],
    gcc: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foo_and_bar(tmp_path)
    (tmp_path / "other").mkdir()
    shared(tmp_path / "other/libfoo.so", "int foo(void) { return 3; }\n")
    # With RUNPATH, which newer linkers write, the loader's search path comes first.
    flags = (f"-L{tmp_path}", "-lfoo", "-Wl,--enable-new-dtags", f"-Wl,-rpath,{tmp_path}")
    toolchain = replace(gcc, extra_flags=flags)
    before = declared(toolchain, text=USES)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "other"))
    assert declared(toolchain, text=USES).key != before.key
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "nowhere"))
    assert declared(toolchain, text=USES).key == before.key


def test_a_search_path_that_changes_nothing_keeps_the_key(
    declared: Callable[..., Artifact], gcc: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = declared(gcc)
    monkeypatch.setenv("LD_LIBRARY_PATH", os.sep)
    assert declared(gcc).key == before.key


def test_a_library_of_the_system_that_the_search_path_shadows_is_noticed(
    gcc: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Places, arch: Arch
) -> None:
    """By the runner's key: kernels use the libraries that it has loaded."""
    from kernloom.build.built_for import BuiltFor
    from kernloom.build.programs import Programs

    def runner() -> Artifact:
        built_for = BuiltFor(gcc, arch, "release", detect(gcc, tmp_path / "c"))
        return Programs(places.roots).artifact("runner", built_for)

    before = runner()
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))
    assert runner().key == before.key
    library = next(Path("/lib").glob("*/libm.so.6"))
    shutil.copy(library, tmp_path / "lib/libm.so.6")
    with (tmp_path / "lib/libm.so.6").open("ab") as file:
        file.write(b"another")
    assert runner().key != before.key


@pytest.mark.parametrize("form", ["-lfoo", "-l foo", "file"])
def test_a_library_in_extra_flags_is_linked(
    declared: Callable[..., Artifact], gcc: Toolchain, places: Places, tmp_path: Path, form: str
) -> None:
    source = tmp_path / "foo.c"
    source.write_text("int foo(void) { return 1; }\n")
    subprocess.run(["gcc", "-c", "-fPIC", source, "-o", tmp_path / "foo.o"], check=True)
    subprocess.run(["ar", "rcsD", tmp_path / "libfoo.a", tmp_path / "foo.o"], check=True)
    words = {"-lfoo": ["-lfoo"], "-l foo": ["-l", "foo"], "file": [f"{tmp_path}/libfoo.a"]}[form]
    toolchain = replace(gcc, extra_flags=(f"-L{tmp_path}", *words, "-Wl,--no-undefined"))
    outcome = next(iter(Builder(places).build([declared(toolchain, text=USES)]).values()))
    assert outcome.ok, outcome.message


def test_flags_without_libraries_stay_where_they_are() -> None:
    plain = {"a": ("-O2", "-Wl,-z,now"), "b": ("-g",)}
    assert libraries_last(plain) == (["-O2", "-Wl,-z,now", "-g"], [])
    mixed = {"a": ("-O2",), "b": ("-Wl,--start-group", "-lx", "-Dy", "-Wl,--end-group")}
    assert libraries_last(mixed) == (
        ["-O2", "-Dy"],
        ["-Wl,--start-group", "-lx", "-Wl,--end-group"],
    )
