"""Programs are declared beside their sources, and built as chains of objects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from demo_kernel import shipped

from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.built_for import BuiltFor
from kernloom.build.programs import Programs
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact
from parts import needs

MAIN = (
    '#include <stdio.h>\n#include "part.h"\nint main(void) { return printf("%d", part()) < 0; }\n'
)
PART = '#include "part.h"\nint part(void) { return PART; }\n'
HEADER = "#define PART 7\nint part(void);\n"
OTHER = "int other(void) { return 1; }\n"


def declare(root: Path, folder: str, files: dict[str, str], **declared: Any) -> None:
    """A program of these files; JSON is YAML, too."""
    place = root / "native" / folder
    for name, text in {**files, "program.yaml": json.dumps(declared)}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    files = {"main.c": MAIN, "part.c": PART, "other.c": OTHER, "part.h": HEADER}
    declare(root, "tool", files, name="tool", kind="executable", sources=["*.c"])
    return root


@pytest.fixture
def built_for(gcc: Toolchain, arch: Arch, cache: Path) -> BuiltFor:
    return BuiltFor(gcc, arch, "release", detect(gcc, cache))


@pytest.fixture
def places(root: Path, tmp_path: Path) -> Places:
    return Places(share_folder(), root, tmp_path / "build", tmp_path / "store.db")


def made(artifact: Artifact, places: Places) -> Path:
    outcome = Builder(places).build([artifact])[artifact.key]
    assert outcome.ok, outcome.message
    return outcome.path


def run(path: Path) -> str:
    return subprocess.run([path], capture_output=True, text=True, check=True).stdout


def names(places: Places) -> dict[str, int]:
    """Object -> number of its versions in the build folder."""
    found: dict[str, int] = {}
    for path in (places.build / "objects").glob("*/*.o"):
        found[path.name] = found.get(path.name, 0) + 1
    return found


def test_a_program_is_an_object_for_each_source_and_a_link(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    program = Programs([root]).artifact("tool", built_for)
    assert [*program.steps] == [f"native/tool/{name}.o" for name in ("main", "other", "part")]
    assert run(made(program, places)) == "7"
    assert names(places) == {"main.o": 1, "other.o": 1, "part.o": 1}
    assert not list((places.build / "runtimes" / program.key).rglob("*.o"))


@pytest.mark.parametrize(
    ("changed", "text", "again"),
    [
        ("other.c", OTHER + "int more;\n", {"other.o"}),
        ("part.h", HEADER.replace("7", "8"), {"main.o", "part.o"}),
        ("unrelated.h", "#define UNRELATED\n", set()),
    ],
)
def test_only_what_reads_a_changed_file_is_compiled_again(
    root: Path, built_for: BuiltFor, places: Places, changed: str, text: str, again: set[str]
) -> None:
    first = Programs([root]).artifact("tool", built_for)
    made(first, places)
    (root / "native/tool" / changed).write_text(text)
    second = Programs([root]).artifact("tool", built_for)
    explanation = Builder(places).state(second).explanation
    made(second, places)
    twice = {name for name, count in names(places).items() if count == 2}
    assert twice == again
    assert (first.key == second.key) == (not again)
    if again:
        assert f"native/tool/{changed}:" in explanation.text
        assert len(explanation.details) == 1, "told once, though several objects changed"


def test_objects_that_are_equal_are_compiled_once(
    root: Path, gcc: Toolchain, cache: Path, places: Places
) -> None:
    shared = {"main.c": '#include "../tool/part.c"\nint main(void) { return 0; }\n'}
    declare(root, "second", shared, name="second", kind="executable", sources=["main.c"])
    third = {"name": "third", "kind": "executable", "sources": ["main.c", "../tool/other.c"]}
    declare(root, "third", {"main.c": "int main(void) { return 0; }\n"}, **third)
    programs, found = Programs([root]), detect(gcc, cache)
    arches = [shipped(Arch, "arch", f"x86_64_v{level}") for level in (2, 3, 4)]
    tools = [programs.artifact("tool", BuiltFor(gcc, arch, "release", found)) for arch in arches]
    assert len({tool.key for tool in tools}) == 1
    for name in ("second", "third"):
        made(programs.artifact(name, BuiltFor(gcc, arches[0], "release", found)), places)
    made(tools[0], places)
    assert names(places)["other.o"] == 1
    assert {link.parts[-4] for link in (places.build / "lib").rglob("tool")} == {"x86_64_v2"}


@pytest.mark.parametrize("kind", ["executable", "library"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_programs_can_be_in_cxx(
    root: Path, arch: Arch, cache: Path, places: Places, kind: str, compiler: str
) -> None:
    toolchain = shipped(Toolchain, "toolchain", compiler)
    needs(toolchain.tools["cxx"])
    text = '#include <string>\nstd::string text() { return "c++"; }\n'
    main = "#include <cstdio>\n#include <string>\nstd::string text();\n"
    main += "int main() { std::puts(text().c_str()); }\n"
    files = {"main.cpp": main, "text.cpp": text}
    declare(root, "cxx", files, name="cxx", kind=kind, language="c++", sources=["*.cpp"])
    built_for = BuiltFor(toolchain, arch, "release", detect(toolchain, cache))
    path = made(Programs([root]).artifact("cxx", built_for), places)
    assert path.name == ("cxx" if kind == "executable" else "cxx.so")
    if kind == "executable":
        assert run(path) == "c++\n"
    c = Programs([root]).artifact("tool", built_for)
    assert "cc1plus" not in c.identity.parts, "an update of C++ leaves programs in C alone"


def test_a_program_uses_the_objects_of_another(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    objects = {"kind": "objects", "sources": ["part.c"], "include": ["../tool"]}
    declare(root, "parts", {"part.c": PART}, name="parts", **objects)
    using = {"kind": "executable", "sources": ["main.c"], "uses": ["parts"]}
    declare(root, "user", {"main.c": MAIN}, name="user", include=["../tool"], **using)
    assert run(made(Programs([root]).artifact("user", built_for), places)) == "7"


def test_what_a_program_is_built_for_is_in_its_names(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    text = "int main(void) { return sizeof(WHAT) != 8; }\n"
    files = {"x86_64/main.c": f"#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n{text}"}
    declare(
        root,
        "varied",
        files,
        name="varied",
        kind="executable",
        sources=["{isa}/*.c"],
        defines={"WHAT": '"{variant}"'},
        varies_by=["isa", "variant"],
    )
    program = Programs([root]).artifact("varied", built_for)
    run(made(program, places))
    assert '-DWHAT="release"' in next(iter(program.steps.values())).argv


def test_a_source_that_does_not_compile_is_named(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    (root / "native/tool/other.c").write_text("int other(void) { return nothing; }\n")
    program = Programs([root]).artifact("tool", built_for)
    outcome = Builder(places).build([program])[program.key]
    assert not outcome.ok and "native/tool/other.c:1" in outcome.message
    assert outcome.source.name == "other.c" and outcome.source.is_file()
    (root / "native/tool/other.c").write_text(OTHER)
    assert run(made(Programs([root]).artifact("tool", built_for), places)) == "7"


def test_an_object_that_is_lost_or_damaged_is_made_again(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    program = Programs([root]).artifact("tool", built_for)
    before = made(program, places).read_bytes()
    shutil.rmtree(places.build / "runtimes")
    (damaged, lost, _) = sorted((places.build / "objects").glob("*/*.o"))
    damaged.write_bytes(b"nonsense")
    shutil.rmtree(lost.parent)
    assert made(program, places).read_bytes() == before


def test_a_header_named_by_a_macro_is_found(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    text = '#define NAME "part.h"\n#include NAME\nint part(void) { return PART; }\n'
    (root / "native/tool/part.c").write_text(text)
    assert run(made(Programs([root]).artifact("tool", built_for), places)) == "7"


def test_the_programs_that_are_shipped() -> None:
    declared = Programs([share_folder()]).declared
    assert {*declared} >= {"runner", "counter", "supervisor", "firmware"}
    assert all(program.about for program in declared.values())


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"sources": ["none.c"]}, "has no source 'native/zzz/none.c'"),
        ({"sources": ["{board}/*.c"]}, "unknown placeholder"),
        ({"uses": ["nobody"]}, "there is no program 'nobody'"),
        ({"uses": ["bad"]}, "programs use each other: bad -> bad"),
        ({"kind": "exe"}, "kind"),
        ({"sourcs": []}, "unknown key 'sourcs'"),
        ({"name": "tool"}, "two programs are called 'tool'"),
        ({"tool": "fortran"}, "needs the tool 'fortran'"),
        ({"language": "c++", "sources": ["main.c"]}, "has no source 'native/zzz/main.c'"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(
    root: Path, built_for: BuiltFor, declared: dict[str, Any], said: str
) -> None:
    usual = {"name": "bad", "kind": "executable", "sources": ["main.c"]}
    declare(root, "zzz", {"main.c": MAIN}, **{**usual, **declared})
    with pytest.raises(ConfigError, match=said):
        Programs([root]).artifact("bad", built_for)


def test_programs_that_use_each_other_in_a_circle_are_named(root: Path) -> None:
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        declare(root, name, {}, name=name, kind="objects", sources=["x.c"], uses=[other])
    with pytest.raises(ConfigError, match="one -> two -> three -> one"):
        Programs([root])


def test_an_unknown_program_names_the_nearest(root: Path, built_for: BuiltFor) -> None:
    with pytest.raises(UnavailableError, match="there is no program 'tol'") as error:
        Programs([root]).artifact("tol", built_for)
    assert "tool" in error.value.hint


def test_two_checkouts_build_the_same(
    root: Path, built_for: BuiltFor, places: Places, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere with spaces" / "root"
    shutil.copytree(root, other)
    elsewhere = Places(share_folder(), other, tmp_path / "other build", tmp_path / "other.db")
    here = Programs([root]).artifact("tool", built_for)
    there = Programs([other]).artifact("tool", built_for)
    assert here.key == there.key
    assert made(here, places).read_bytes() == made(there, elsewhere).read_bytes()


def test_an_absolute_include_is_an_outside_file_and_never_written(
    root: Path, built_for: BuiltFor, places: Places, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.h"
    outside.write_text("#define PART 9\nint part(void);\n")
    before = outside.stat()
    for name in ("main.c", "part.c"):
        path = root / "native/tool" / name
        path.write_text(path.read_text().replace('"part.h"', f'"{outside}"'))
    program = Programs([root]).artifact("tool", built_for)
    assert run(made(program, places)) == "9"
    assert outside.stat().st_mtime_ns == before.st_mtime_ns
    outside.write_text("#define PART 10\nint part(void);\n")
    assert run(made(Programs([root]).artifact("tool", built_for), places)) == "10"


def test_files_of_the_same_name_in_two_roots_are_not_mixed_up(
    root: Path, built_for: BuiltFor, places: Places, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    for number, (place, name) in enumerate(((root, "one"), (other, "two"))):
        text = f'#include <stdio.h>\nint main(void) {{ return printf("{number}") < 0; }}\n'
        declare(place, "same", {"main.c": text}, name=name, kind="executable", sources=["main.c"])
    programs = Programs([root, other])
    assert [run(made(programs.artifact(n, built_for), places)) for n in ("one", "two")] == [
        *("0", "1")
    ]


def test_a_program_of_a_project_finds_the_headers_that_are_shipped(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    text = '#include "kernloom/kernel.h"\nint main(void) { return 0; }\n'
    usual = {"kind": "executable", "sources": ["main.c"], "include": ["../include"]}
    declare(root, "mine", {"main.c": text}, name="mine", **usual)
    run(made(Programs([root, share_folder()]).artifact("mine", built_for), places))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_what_assembly_reads_does_not_go_unnoticed(
    root: Path, arch: Arch, cache: Path, places: Places, tmp_path: Path, compiler: str
) -> None:
    toolchain = shipped(Toolchain, "toolchain", compiler)
    needs(compiler)
    (tmp_path / "blob").write_text("blob")
    text = f'__asm__(".inc" "bin \\"{tmp_path / "blob"}\\"");\n'
    (root / "native/tool/other.c").write_text(text + OTHER)
    built_for = BuiltFor(toolchain, arch, "release", detect(toolchain, cache))
    program = Programs([root]).artifact("tool", built_for)
    outcome = Builder(places).build([program])[program.key]
    assert not outcome.ok and "reads a file by" in outcome.message


def test_a_linker_script_is_a_part_of_a_program(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    script = {"common/v.ld": "{ global: answer; local: *; };\n", "x.c": "int answer = 42;\n"}
    flags = ["-Wl,--version-script=native/lib/common/v.ld"]
    usual = {"kind": "library", "sources": ["x.c"], "data": ["common/v.ld"], "link": flags}
    declare(root, "lib", script, name="lib", **usual)
    first = Programs([root]).artifact("lib", built_for)
    made(first, places)
    (root / "native/lib/common/v.ld").write_text("{ global: answer; };\n")
    assert Programs([root]).artifact("lib", built_for).key != first.key


def test_what_is_used_is_linked_wherever_it_comes_from(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    deep = (
        "#include <string>\nextern \"C\" int deep() { return (int)std::string(7, 'x').size(); }\n"
    )
    objects = {"kind": "objects"}
    declare(
        root, "deep", {"deep.cpp": deep}, name="deep", language="c++", sources=["*.cpp"], **objects
    )
    part = "int deep(void);\nint part(void) { return deep(); }\n"
    declare(root, "mid", {"p.c": part}, name="mid", sources=["p.c"], uses=["deep"], **objects)
    using = {"uses": ["mid"], "include": ["../tool"], "sources": ["main.c"]}
    declare(root, "user", {"main.c": MAIN}, name="user", kind="executable", **using)
    declare(
        root,
        "lib",
        {"main.c": PART.replace("part(", "other(")},
        name="lib",
        kind="library",
        **using,
    )
    programs = Programs([root])
    assert run(made(programs.artifact("user", built_for), places)) == "7"
    made(programs.artifact("lib", built_for), places)


def test_a_header_that_is_asked_for_is_seen(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    text = '#if __has_include("part.h")\n/**/ #include "part.h"\n#else\n#error none\n#endif\n'
    (root / "native/tool/part.c").write_text(text + "int part(void) { return PART; }\n")
    assert run(made(Programs([root]).artifact("tool", built_for), places)) == "7"


def test_an_object_that_vanishes_before_the_link_is_made_again(
    root: Path, built_for: BuiltFor, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Programs([root]).artifact("tool", built_for)
    made(program, places)
    shutil.rmtree(places.build / "runtimes")
    builder = Builder(places)
    jobs = Builder._jobs

    def vanishing(self: Builder, *given: Any) -> Any:
        found = jobs(self, *given)
        for folder in (places.build / "objects").iterdir():
            shutil.rmtree(folder)
        return found

    monkeypatch.setattr(Builder, "_jobs", vanishing)
    assert builder.build([program])[program.key].ok


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"output": "../../escaped"}, "cannot be the name of a program"),
        ({"name": "a/b"}, "cannot be the name of a program"),
        ({"name": ""}, "cannot be the name of a program"),
        ({"name": "all"}, "cannot be the name of a program"),
        ({"output": "tool"}, "are both built as 'tool'"),
        ({"sources": []}, "is empty"),
        ({"sources": [""]}, "is not a path below native/"),
        ({"sources": ["/etc/*.c"]}, "is not a path below native/"),
        ({"include": ["/usr/include"]}, "is not a path below native/"),
        ({"include": ["../../.."]}, "is not a path below native/"),
        ({"data": ["../../secret"]}, "is not a path below native/"),
        ({"link": ["@/tmp/flags"]}, "refused|is no flag|not known"),
        ({"link": ["-Llib"]}, "relative path"),
        ({"uses": ["tool"]}, "is no set of objects and no archive"),
        ({"kind": "objects", "runs_on": "host"}, "objects are linked"),
        ({"kind": "archive", "runs_on": "host"}, "objects are linked"),
        ({"output": "native"}, "cannot be the name of a program"),
        ({"sources": ["**main.c"]}, "is no pattern"),
        ({"defines": {"A B": "1"}}, "'A B' is no name of a macro"),
        ({"defines": {"": "1"}}, "'' is no name of a macro"),
        ({"defines": {"A": "{}"}}, "unknown placeholder"),
        ({"language": "c++", "sources": ["a.*"]}, "two sources would be compiled"),
    ],
)
def test_what_a_declaration_must_not_say_is_refused(
    root: Path, built_for: BuiltFor, declared: dict[str, Any], said: str
) -> None:
    usual = {"name": "bad", "kind": "executable", "sources": ["main.c"]}
    files = {"main.c": MAIN, "a.cpp": "", "a.cc": ""}
    declare(root, "zzz", files, **{**usual, **declared})
    with pytest.raises(ConfigError, match=said):
        Programs([root]).artifact(declared.get("name", "bad"), built_for)


def test_a_source_that_is_no_text_is_said(root: Path, built_for: BuiltFor) -> None:
    (root / "native/tool/other.c").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        Programs([root]).artifact("tool", built_for)


def test_the_choice_of_a_linker_is_for_links_only(root: Path, built_for: BuiltFor) -> None:
    toolchain = built_for.toolchain
    flags = (*toolchain.flags, "-fuse-ld=bfd")
    chosen = replace(built_for, toolchain=replace(toolchain, flags=flags))
    program = Programs([root]).artifact("tool", chosen)
    assert "-fuse-ld=bfd" in program.argv
    assert all("-fuse-ld=bfd" not in step.argv for step in program.steps.values())


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"kind": "exe"}, "native/zzz/program.yaml: kind: "),
        ({"defines": {"A": True}}, "native/zzz/program.yaml: defines.A: expected text"),
        ({"sources": []}, "native/zzz/program.yaml: sources: is empty"),
        ({"defines": {"A": "{x}"}}, "native/zzz/program.yaml: defines: "),
        ({"colour": 1}, "native/zzz/program.yaml: unknown key 'colour'"),
    ],
)
def test_errors_name_the_declaration_and_its_key(
    root: Path, declared: dict[str, Any], said: str
) -> None:
    usual = {"name": "bad", "kind": "executable", "sources": ["main.c"]}
    declare(root, "zzz", {}, **{**usual, **declared})
    with pytest.raises(ConfigError) as error:
        Programs([root])
    assert str(error.value).startswith(said)
    (root / "native/zzz/program.yaml").write_text("[")
    with pytest.raises(ConfigError) as error:
        Programs([root])
    assert str(error.value).startswith("native/zzz/program.yaml:")


def test_a_brace_is_written_twice(root: Path, built_for: BuiltFor, places: Places) -> None:
    main = '#include <stdio.h>\nint main(void) { int x[] = X; return printf("%d", x[0]) < 0; }\n'
    usual = {"name": "brace", "kind": "executable", "sources": ["main.c"]}
    declare(root, "brace", {"main.c": main}, defines={"X": "{{7}}", "Y": "{{{isa}}}"}, **usual)
    program = Programs([root]).artifact("brace", built_for)
    assert run(made(program, places)) == "7"
    (step,) = program.steps.values()
    assert {"-DX={7}", "-DY={x86_64}"} <= {*step.argv}


def test_the_next_header_of_a_name_is_found(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    files = {
        "main.c": MAIN.replace('"part.h"', "<stdlib.h>"),
        "one/stdlib.h": "#include_next <stdlib.h>\n#define PART two\n",
        "two/stdlib.h": "static int part(void) { return 2; }\n",
    }
    usual = {"kind": "executable", "sources": ["main.c"], "include": ["one", "two"]}
    declare(root, "next", files, name="next", **usual)
    assert run(made(Programs([root]).artifact("next", built_for), places)) == "2"
    (root / "native/next/two/stdlib.h").write_text("static int part(void) { return 3; }\n")
    assert run(made(Programs([root]).artifact("next", built_for), places)) == "3"


def test_a_header_that_a_macro_asks_for_is_seen(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    text = '#define NAME "part.h"\n#if !__has_include(NAME)\n#error none\n#endif\n'
    (root / "native/tool/other.c").write_text(text)
    assert run(made(Programs([root]).artifact("tool", built_for), places)) == "7"


def test_any_name_of_a_folder_or_source_is_taken_as_it_is(
    root: Path, built_for: BuiltFor, places: Places
) -> None:
    folder = "odd [x] *? {isa} $HOME %s"
    files = {"main.c": MAIN, "part.h": HEADER, 'a "b" \n ü#$x;.c': PART}
    declare(root, folder, files, name="odd", kind="executable", sources=["*.c"])
    assert run(made(Programs([root]).artifact("odd", built_for), places)) == "7"


def test_a_name_that_is_no_text_is_said(root: Path, built_for: BuiltFor) -> None:
    (root / "native/tool" / os.fsdecode(b"bad\xff.c")).write_text(OTHER)
    with pytest.raises(ConfigError, match=r"bad\\udcff.c' is not UTF-8"):
        Programs([root]).artifact("tool", built_for)


def test_a_source_that_cannot_be_read_is_not_left_out(root: Path, built_for: BuiltFor) -> None:
    (root / "native/tool/gone.c").symlink_to("nowhere.c")
    with pytest.raises(ConfigError, match=r"gone.c cannot be read: No such file"):
        Programs([root]).artifact("tool", built_for)


def test_a_backslash_in_the_path_means_nothing(
    root: Path, gcc: Toolchain, arch: Arch, tmp_path: Path
) -> None:
    folder = tmp_path / "back\\slash"
    places = Places(share_folder(), root, folder / "build", folder / "store.db")
    built_for = BuiltFor(gcc, arch, "release", detect(gcc, folder / "cache"))
    assert run(made(Programs([root]).artifact("tool", built_for), places)) == "7"
