"""Static libraries are made from objects, and linked into programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from demo_kernel import shipped
from test_programs import declare, made, run

from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.built_for import BuiltFor
from kernloom.build.programs import Programs
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from parts import needs

MAIN = '#include <stdio.h>\nint top(void);\nint main(void) { return printf("%d", top()) < 0; }\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A program that uses an archive, which needs two others, one of them through the other."""
    root = tmp_path / "root"
    archive = {"kind": "archive", "sources": ["*.c", "more/*.c"]}
    sources = {
        "base": {"x.c": "int base(void) { return 1; }\n", "more/x.c": "int more = 5;\n"},
        "mid": {"x.c": "int base(void);\nextern int more;\nint mid(void) { return base(); }\n"},
        "top": {"x.c": "int mid(void), base(void);\nint top(void) { return mid() + base(); }\n"},
    }
    sources["mid"]["more/y.c"] = "int base(void);\nint unused(void) { return base(); }\n"
    sources["top"]["more/y.c"] = "int unused_too;\n"
    uses = {"base": [], "mid": ["base"], "top": ["base", "mid"]}
    for name, files in sources.items():
        declare(root, name, files, name=name, uses=uses[name], **archive)
    using = {"kind": "executable", "sources": ["main.c"], "uses": ["top"]}
    declare(root, "user", {"main.c": MAIN}, name="user", **using)
    return root


@pytest.fixture
def places(root: Path, tmp_path: Path) -> Places:
    return Places(share_folder(), root, tmp_path / "build", tmp_path / "store.db")


@pytest.fixture
def built_for(gcc: Toolchain, arch: Arch, cache: Path) -> BuiltFor:
    return BuiltFor(gcc, arch, "release", detect(gcc, cache))


def test_a_program_links_archives_each_before_what_it_needs(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    program = Programs([root]).artifact("user", built_for)
    assert [*program.steps] == [
        "native/user/main.o",
        *(f"native/{name}/lib{name}.a" for name in ("top", "mid", "base")),
    ]
    assert run(made(program, places)) == "2"
    assert len([*places.build.glob("archives/*/*.a")]) == 3


def test_an_archive_keeps_members_of_one_name_and_no_times(
    root: Path, built_for: BuiltFor, places: Places, tmp_path: Path
) -> None:
    archive = Programs([root]).artifact("base", built_for)
    path = made(archive, places)
    listed = subprocess.run(["ar", "tO", path], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["x.o", "x.o"]
    link = places.build / "lib" / archive.arch / "release/none/libbase.a"
    assert link.resolve() == path.resolve()
    elsewhere = Places(share_folder(), root, tmp_path / "again", tmp_path / "again.db")
    assert made(archive, elsewhere).read_bytes() == path.read_bytes()


def test_only_what_needs_a_changed_source_is_made_again(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    made(Programs([root]).artifact("user", built_for), places)
    before = {path.parent.name for path in places.build.glob("*/*/manifest.json")}
    (root / "native/base/x.c").write_text("int base(void) { return 2; }\n")
    program = Programs([root]).artifact("user", built_for)
    said = Builder(places).state(program).explanation.text
    assert "native/base/x.c:1:" in said
    assert run(made(program, places)) == "4"
    after = {path.parent.name for path in places.build.glob("*/*/manifest.json")}
    new = [next(places.build.glob(f"*/{key}")) for key in after - before]
    assert sorted(path.parent.name for path in new) == ["archives", "objects", "runtimes"]


def test_a_library_takes_archives_that_can_be_loaded_anywhere(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    using = {"kind": "library", "sources": ["lib.c"], "uses": ["top"]}
    text = "int top(void);\nint call(void) { return top(); }\n"
    declare(root, "lib", {"lib.c": text}, name="lib", **using)
    library = Programs([root]).artifact("lib", built_for)
    made(library, places)
    objects = [step for one in library.steps.values() for step in one.steps.values()]
    assert objects and all("-fPIC" in step.argv for step in objects)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_an_archive_in_cxx_makes_its_users_link_as_cxx(
    root: Path, arch: Arch, cache: Path, places: Places, compiler: str
) -> None:
    toolchain = shipped(Toolchain, "toolchain", compiler)
    needs(toolchain.tools["cxx"])
    text = "#include <string>\nextern \"C\" int top() { return (int)std::string(3, 'x').size(); }\n"
    shutil.rmtree(root / "native/top")
    usual = {"kind": "archive", "language": "c++", "sources": ["*.cpp"], "link": ["-lm"]}
    declare(root, "top", {"top.cpp": text}, name="top", **usual)
    built_for = BuiltFor(toolchain, arch, "release", detect(toolchain, cache))
    program = Programs([root]).artifact("user", built_for)
    assert program.argv[-1] == "-lm", "what an archive needs is linked with it"
    assert run(made(program, places)) == "3"


def test_objects_that_an_archive_uses_are_in_it(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    objects = {"kind": "objects", "sources": ["*.c"]}
    declare(root, "extra", {"e.c": "int top(void) { return 9; }\n"}, name="extra", **objects)
    shutil.rmtree(root / "native/top")
    usual = {"kind": "archive", "sources": ["*.c"], "uses": ["extra"]}
    declare(root, "top", {"t.c": "int nothing;\n"}, name="top", **usual)
    program = Programs([root]).artifact("user", built_for)
    assert [*program.steps] == ["native/user/main.o", "native/top/libtop.a"]
    assert run(made(program, places)) == "9"


def test_another_archiver_is_another_archive(
    root: Path, gcc: Toolchain, arch: Arch, places: Places, tmp_path: Path
) -> None:
    """The archiver is the one that the compiler names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    real = subprocess.run(
        ["gcc", "-print-prog-name=ar"], capture_output=True, text=True, check=True
    )
    tool = folder / "ar"
    tool.write_bytes(Path(shutil.which(real.stdout.strip()) or "").read_bytes() + b"\n")
    tool.chmod(0o755)
    built_for = BuiltFor(gcc, arch, "release", detect(gcc, tmp_path / "cache"))
    usual = Programs([root]).artifact("base", built_for)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        again = BuiltFor(gcc, arch, "release", detect(gcc, tmp_path / "cache"))
        other = Programs([root]).artifact("base", again)
        made(other, places)
    assert other.key != usual.key
    assert [step.key for step in other.steps.values()] == [s.key for s in usual.steps.values()]
