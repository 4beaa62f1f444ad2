"""Plain `scons` behaves as somebody who knows SCons expects."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_runtimes import DECLARATION, run, scons, share  # noqa: F401 (a fixture)

RUNNER = "build/lib/x86_64_v3/release/none/runner"
PART = '#include "part.h"\nint part(void) { return 0; }\n'
Scons = Callable[..., str]


@pytest.fixture
def tree(share: Path) -> Path:  # noqa: F811
    """A runner of two sources, for GCC alone: this is about the graph, not the compilers."""
    (share / "native/runner/part.c").write_text(PART)
    (share / "native/runner/part.h").write_text("int part(void);\n")
    for path in (share / "configs/toolchain").glob("*.yaml"):
        if path.stem != "gcc":
            path.unlink()
    for name in ("a2a3", "a5", "mppa"):
        (share / f"configs/target/{name}.yaml").unlink()
    return share


@pytest.fixture
def built(tree: Path) -> Scons:
    def build(*options: str, code: int = 0) -> str:
        done = scons(tree, *options)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return build


def compiled(output: str) -> set[str]:
    """The objects and programs that a run of SCons made."""
    lines = [line for line in output.splitlines() if line.startswith("gcc ")]
    return {line.split(" -o ")[1].split()[0] for line in lines}


def whole(output: str) -> set[str]:
    """The same, units without the hash of their text."""
    return {re.sub(r"-\w+\.o$", ".o", name) for name in compiled(output)}


def test_one_target_builds_what_it_needs_and_no_more(tree: Path, built: Scons) -> None:
    assert compiled(built(RUNNER)) == {"main.o", "part.o", "runner"}
    assert run(tree / RUNNER) == "42"
    assert [path.parts[-4] for path in (tree / "build/lib").rglob("runner")] == ["x86_64_v3"]
    assert compiled(built(RUNNER)) == set()


@pytest.mark.parametrize("name", ["runner", "x86_64_v3", "gcc"])
def test_programs_arches_and_toolchains_are_aliases(tree: Path, built: Scons, name: str) -> None:
    assert {"main.o", "runner"} <= compiled(built(name))
    assert run(tree / RUNNER) == "42"
    assert built(name) == f"scons: `{name}' is up to date.\n"


def test_only_what_changed_is_built_again(tree: Path, built: Scons) -> None:
    built(RUNNER)
    (tree / "native/runner/main.c").touch()
    assert compiled(built(RUNNER)) == set()
    (tree / "native/runner/part.c").write_text(PART.replace("0", "1"))
    output = built("--debug=explain", RUNNER)
    assert compiled(output) == {"part.o", "runner"}
    assert output.count("native/runner/part.c:2: 'int part(void) { return 0; }'") == 2
    (tree / "native/include/kernloom/answer.h").write_text("#define ANSWER 43\n")
    assert compiled(built(RUNNER)) == {"main.o", "runner"}
    assert run(tree / RUNNER) == "43"


def test_sources_of_a_folder_are_compiled_as_one_unit(tree: Path, built: Scons) -> None:
    declaration = tree / "native/runner/program.yaml"
    declaration.write_text(declaration.read_text() + "\nunity: true\n")
    assert whole(built(RUNNER)) == {"unity.o", "runner"}
    assert run(tree / RUNNER) == "42"
    assert not list((tree / "native/runner").glob("unity*"))
    shown = built("--tree=all", RUNNER)
    assert "native/runner/main.c" in shown and "native/runner/part.h" in shown
    assert not re.search(r"unity-\w+\.c", shown)
    assert compiled(shown) == set()
    (tree / "native/runner/part.c").write_text(PART.replace("0", "1"))
    output = built("--debug=explain", RUNNER)
    assert whole(output) == {"unity.o", "runner"}
    assert "native/runner/part.c:2: 'int part(void) { return 0; }'" in output
    commands = json.loads((tree / "build/compile_commands.json").read_text())
    files = [entry["file"] for entry in commands]
    assert sorted(files) == ["native/runner/main.c", "native/runner/part.c"]


def test_programs_of_one_folder_have_units_of_their_own_sources(tree: Path, built: Scons) -> None:
    codes = {"one": 3, "two": 7}
    text = (tree / "native/runner/program.yaml").read_text()
    for name, code in codes.items():
        (tree / f"native/runner/{name}.c").write_text(f"int main(void) {{ return {code}; }}\n")
        own = text.replace("name: runner", f"name: {name}").replace("*.c", f"../runner/{name}.c")
        (tree / "native" / name).mkdir()
        (tree / "native" / name / "program.yaml").write_text(f"{own}unity: true\n")
    built(*codes)
    for name, code in codes.items():
        program = tree / f"build/lib/x86_64_v3/release/none/{name}"
        assert subprocess.run([program]).returncode == code


def test_a_flag_of_one_variant_concerns_that_variant(tree: Path, built: Scons) -> None:
    built()
    toolchain = tree / "configs/toolchain/gcc.yaml"
    text = toolchain.read_text()
    toolchain.write_text(text.replace("release: []", "release: [-fno-plt]"))
    output = built()
    assert compiled(output) == {"main.o", "part.o", "runner"}
    assert "-fsanitize" not in output


def test_the_tree_has_sources_objects_and_programs(tree: Path, built: Scons) -> None:
    for _ in range(2):
        output = built("--tree=all", RUNNER)
        for name in (
            "native/runner/main.c",
            "native/include/kernloom/answer.h",
            "main.o",
            "part.h",
        ):
            assert any(line.endswith(name) for line in output.splitlines()), name
    assert compiled(output) == set()


def test_a_dry_run_builds_nothing(tree: Path, built: Scons) -> None:
    assert compiled(built("-n", RUNNER)) == {"main.o", "part.o", "runner"}
    assert not (tree / "build/objects").exists() and not (tree / "build/lib").exists()


def everything(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("option", ["-n", "-q", "-h", "--tree=all", "--debug=explain"])
def test_looking_writes_nothing(tree: Path, built: Scons, option: str) -> None:
    built()
    before = everything(tree / "build")
    built(option)
    assert everything(tree / "build") == before
    shutil.rmtree(tree / "build")
    if option in ("-n", "-q", "-h"):
        built(option, code=int(option == "-q"))
        left = {path.name for path in (tree / "build").iterdir()}
        assert left <= {"cache"}, "only what is known of compilers"


def test_a_tree_that_is_up_to_date_can_be_read_only(tree: Path, built: Scons) -> None:
    """A folder in place of each file that SCons or Kernloom might write."""
    built()
    (tree / "build/.lock").unlink()
    for name in (".lock", ".sconsign.dblite", ".sconsign.tmp"):
        (tree / "build" / name).mkdir()
    assert built() == "scons: `all' is up to date.\n"
    assert "cannot write below" in built("-c", code=2)


def test_the_way_it_is_started_makes_no_difference(tree: Path, built: Scons) -> None:
    built()
    above = scons(tree.parent, "-f", str(tree / "SConstruct"), XDG_CACHE_HOME=str(tree / "cache"))
    assert above.returncode == 0, above.stderr
    done = scons(tree, PYTHONOPTIMIZE="2", CC="false", CFLAGS="-DANSWER=1", CPATH="/nowhere")
    assert done.stdout == "scons: `all' is up to date.\n", done.stderr


@pytest.mark.parametrize("path", ["build", "build/lib", "build/objects"])
def test_a_file_in_the_way_of_a_folder_is_named(tree: Path, built: Scons, path: str) -> None:
    built()
    if (tree / path).is_dir():
        shutil.rmtree(tree / path)
    (tree / path).write_text("")
    output = built(code=2)
    assert f"{path} is no folder" in output and "Traceback" not in output


def test_a_folder_in_the_way_of_a_name_is_named(tree: Path, built: Scons) -> None:
    (tree / RUNNER / "mine").mkdir(parents=True)
    output = built(code=2)
    assert f"{RUNNER} is a folder" in output and "Traceback" not in output


def test_showing_the_graph_builds_no_objects_that_nothing_needs(tree: Path, built: Scons) -> None:
    built()
    shutil.rmtree(tree / "build/objects")
    for option in ("--tree=all", "--debug=explain"):
        assert compiled(built(option)) == set()
    assert not (tree / "build/objects").exists()


def test_cleaning_removes_what_it_failed_to_build(tree: Path, built: Scons) -> None:
    (tree / "native/runner/part.c").write_text("int part(void) { return nothing; }\n")
    built(RUNNER, code=2)
    kernel = tree / "build/failed/0123456789abcdef0123456789abcdef/kernel.c"
    kernel.parent.mkdir()
    kernel.write_text("a kernel that does not compile")
    assert len([*(tree / "build/failed").iterdir()]) == 2
    built("-c")
    assert [*(tree / "build/failed").iterdir()] == [kernel.parent]
    shutil.rmtree(kernel.parent)
    built("-c")
    assert not (tree / "build/failed").exists()


def test_cleaning_removes_its_own_and_nothing_else(tree: Path, built: Scons) -> None:
    built(RUNNER)
    (tree / "native/runner/part.c").write_text(PART.replace("0", "1"))
    built()
    mine = tree / "build/lib/notes.txt"
    mine.write_text("mine")
    kernel = tree / "build/kernels/0123456789abcdef0123456789abcdef/kernel.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("a kernel")
    built("-c")
    left = {p.relative_to(tree / "build").parts[0] for p in (tree / "build").rglob("*")}
    assert left - {"cache", "compile_commands.json", "index", "tmp", ".lock"} == {"kernels", "lib"}
    assert mine.exists() and kernel.exists()
    assert not list((tree / "build").rglob("runner"))
    shutil.rmtree(tree / "build/kernels")
    mine.unlink()
    built()
    built("-c")
    assert {path.name for path in (tree / "build").iterdir()} <= {".lock", "cache"}
    assert compiled(built(RUNNER)) == {"main.o", "part.o", "runner"}


def test_help_lists_what_there_is(built: Scons) -> None:
    output = built("-h")
    for word in ("runner", "x86_64_v4", "gcc", "--build-cache", "--tree=all", "scons -H"):
        assert word in output


def test_an_unknown_target_names_the_nearest(built: Scons) -> None:
    assert "Did you mean 'runner'?" in built("runer", code=2)
    assert f"Did you mean '{RUNNER}'?" in built(RUNNER[:-1], code=2)


def test_what_is_left_out_is_said(tree: Path, built: Scons) -> None:
    other = (tree / "configs/toolchain/gcc.yaml").read_text()
    other = other.replace("name: gcc", "name: other").replace("cc: gcc", "cc: no-such-gcc")
    (tree / "configs/toolchain/other.yaml").write_text(other)
    output = built()
    assert "left out: toolchain 'other': no program 'no-such-gcc'" in output
    assert run(tree / RUNNER) == "42"


def test_with_k_the_rest_is_built(tree: Path, built: Scons) -> None:
    (tree / "native/runner/part.c").write_text("int part(void) { return nothing; }\n")
    output = built("-k", RUNNER, code=2)
    assert "main.o" in compiled(output) and "'nothing' undeclared" in output
    assert not (tree / RUNNER).exists()


def test_a_damaged_file_is_built_again(tree: Path, built: Scons) -> None:
    built(RUNNER)
    path = (tree / RUNNER).resolve()
    path.chmod(0o755)
    path.write_text("damaged")
    assert compiled(built(RUNNER)) == {"runner"}
    assert run(tree / RUNNER) == "42"


def test_a_wrong_declaration_is_one_clear_line(tree: Path, built: Scons) -> None:
    (tree / "native/runner/program.yaml").write_text(DECLARATION + "colour: blue\n")
    output = built(code=2)
    assert "unknown key 'colour'" in output and "Traceback" not in output


def test_editors_get_the_command_of_every_source(tree: Path, built: Scons) -> None:
    built()
    entries = json.loads((tree / "build/compile_commands.json").read_text())
    found = {Path(entry["directory"], entry["file"]) for entry in entries}
    assert found == set((tree / "native").rglob("*.c"))
    for entry in entries:
        command = [*entry["arguments"], "-fsyntax-only"]
        subprocess.run(command, cwd=entry["directory"], check=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a program `mine`, for a declaration and source of the test's own."""
    folder = tmp_path / "project"
    (folder / "native/mine").mkdir(parents=True)
    (folder / "kernloom.yaml").touch()
    return folder


@pytest.mark.parametrize("target", ["mine", "runner"])
def test_editors_find_the_headers_of_kernloom_for_a_program_of_a_project(
    tree: Path, project: Path, target: str
) -> None:
    (project / "native/mine/program.yaml").write_text(
        "{name: mine, kind: objects, sources: [odd.c], include: [., ../include]}"
    )
    (project / "native/mine/own.h").write_text("#define OWN 1\n")
    (project / "native/mine/odd.c").write_text(
        '#include <kernloom/answer.h>\n#include "own.h"\nint odd = ANSWER + OWN;\n'
    )
    done = scons(project, "-f", str(tree / "SConstruct"), target)
    assert done.returncode == 0, done.stdout + done.stderr
    entries = json.loads((project / ".kernloom/build/compile_commands.json").read_text())
    (entry,) = [entry for entry in entries if entry["file"] == "native/mine/odd.c"]
    assert entry["directory"] == str(project)
    command = [*entry["arguments"], "-fsyntax-only"]
    subprocess.run(command, cwd=entry["directory"], check=True)


def test_a_dry_run_of_cleaning_removes_nothing(tree: Path, built: Scons) -> None:
    built(RUNNER)
    before = sorted(path for path in (tree / "build").rglob("*") if "/cache" not in str(path))
    built("-c", "-n")
    after = sorted(path for path in (tree / "build").rglob("*") if "/cache" not in str(path))
    assert before == after


def test_a_dollar_sign_in_the_path_means_nothing(tree: Path, built: Scons) -> None:
    other = tree.with_name("share tree$HOME$x")
    shutil.copytree(tree, other)
    built(RUNNER)
    for options in ((RUNNER,), ("-c",)):
        done = scons(other, *options)
        assert done.returncode == 0, done.stderr
    assert run(tree / RUNNER) == "42"
    assert not list(other.glob("build/objects/*"))


def test_a_program_of_a_project_is_built_from_there(tree: Path, project: Path) -> None:
    (project / "native/mine/program.yaml").write_text(
        "{name: mine, kind: objects, sources: [odd.c], varies_by: [isa]}"
    )
    (project / "native/mine/odd.c").write_text("int odd;\n")
    for _ in range(2):
        done = scons(project, "-f", str(tree / "SConstruct"), "--tree=all", "mine")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "native/mine/odd.c" in done.stdout
    assert list(project.glob(".kernloom/build/objects/*/odd.o"))


def test_a_missing_tool_for_one_program_leaves_only_that_out(tree: Path, built: Scons) -> None:
    toolchain = tree / "configs/toolchain/gcc.yaml"
    toolchain.write_text(toolchain.read_text().replace("cxx: g++", "cxx: no-such-g++"))
    (tree / "native/plus").mkdir()
    (tree / "native/plus/plus.cpp").write_text("int main() {}\n")
    (tree / "native/plus/program.yaml").write_text(
        "{name: plus, kind: executable, language: c++, sources: [plus.cpp]}"
    )
    output = built()
    assert "left out: toolchain 'gcc': no program 'no-such-g++'" in output
    assert "toolchain.tools.cxx" in output
    assert "Install the package with 'no-such-g++'" in output and "apt-get" not in output
    assert run(tree / RUNNER) == "42"
    assert "no toolchain for 'plus' is on this machine" in built("plus", code=2)


def add(tree: Path, name: str, declared: str, source: str = "part.c") -> None:
    folder = tree / "native" / name
    folder.mkdir()
    (folder / source).write_text("int other(void) { return 0; }\n")
    (folder / "program.yaml").write_text(f"{{name: {name}, sources: [{source}], {declared}}}")


def test_an_archive_is_built_found_and_removed(tree: Path, built: Scons) -> None:
    add(tree, "other", "kind: archive, varies_by: [isa]")
    assert " qcsD libother.a native/other/part.o" in built("other")
    path = tree / "build/lib/x86_64_v3/release/none/libother.a"
    assert path.is_file() and built("other") == "scons: `other' is up to date.\n"
    built("-c")
    assert not path.is_symlink() and not (tree / "build/archives").exists()


@pytest.mark.parametrize("name", ["gcc", "x86_64_v3"])
def test_a_program_with_the_name_of_another_target_is_refused(
    tree: Path, built: Scons, name: str
) -> None:
    add(tree, name, "kind: objects")
    said = f"program '{name}' has the name of an arch or a toolchain"
    assert f"native/{name}/program.yaml: name: {said}" in built(code=2)


def test_a_program_for_an_unknown_isa_is_said(tree: Path, built: Scons) -> None:
    add(tree, "other", "kind: objects, isas: [x86-64]")
    add(tree, "both", "kind: objects, isas: [x86_64, aarch65]")
    output = built()
    hint = "Did you mean 'x86_64'?"
    assert f"left out: program 'other': no arch has the ISA 'x86-64'\n  {hint}" in output
    assert "left out: program 'both': no arch has the ISA 'aarch65'" in output
    assert "native/both/part.c" in output and "native/other/part.c" not in output
    assert "'x86-64'" in built("other", code=2)


def test_a_source_that_cannot_be_read_is_an_error(tree: Path, built: Scons) -> None:
    (tree / "native/runner/gone.c").symlink_to("nowhere")
    assert "gone.c cannot be read" in built(code=2)


def test_names_without_a_toolchain_are_known_but_left_out(tree: Path, built: Scons) -> None:
    other = (tree / "configs/toolchain/gcc.yaml").read_text()
    other = other.replace("name: gcc", "name: other").replace("cc: gcc", "cc: no-such-gcc")
    (tree / "configs/toolchain/other.yaml").write_text(other)
    for name in ("other", "aarch64"):
        output = built(name, code=2)
        assert f"no toolchain for '{name}' is on this machine:" in output
        assert output.count("no program 'no-such-gcc'") == 2, output


def test_an_arch_without_programs_is_said(built: Scons) -> None:
    assert "no program below native/ is built for 'opencl'" in built("opencl", code=2)


def test_a_link_of_a_lost_toolchain_is_not_up_to_date(tree: Path, built: Scons) -> None:
    old = tree / "build/lib/aarch64/release/none/runner"
    old.parent.mkdir(parents=True)
    old.symlink_to("/bin/true")
    name = str(old.relative_to(tree))
    assert "'aarch64'" in built(name, code=2)
    assert "'aarch64'" in built(str(old.parent.relative_to(tree)), code=2)
    assert "Nothing to be done" in built("native/runner/main.c")


def test_reasons_of_other_programs_are_not_given(tree: Path, built: Scons) -> None:
    toolchain = tree / "configs/toolchain/gcc.yaml"
    toolchain.write_text(toolchain.read_text().replace(", cxx: g++", ""))
    add(tree, "mine", "kind: executable, language: c++", "part.cpp")
    output = built("mine", code=2)
    assert "needs the tool 'cxx', which toolchain 'gcc' does not have" in output
    assert "tools: {cxx: NAME} and cxx_flags in configs/toolchain/gcc.yaml" in output
    assert "Did you mean" not in output


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("data: [no.ld]", "data: program 'mine' has no file 'native/mine/no.ld'"),
        ("defines: {SIZE: true}", "defines.SIZE: expected text or a whole number or a number"),
    ],
)
def test_a_declaration_that_fits_nothing_is_refused(
    tree: Path, built: Scons, declaration: str, said: str
) -> None:
    add(tree, "mine", f"kind: executable, varies_by: [isa], {declaration}")
    output = built(code=2)
    assert f"native/mine/program.yaml: {said}" in output and "Traceback" not in output
    assert "no toolchain" not in output


def test_a_number_is_the_value_of_a_macro(tree: Path, built: Scons) -> None:
    add(tree, "mine", "kind: objects, defines: {SIZE: 4, HALF: 0.5}")
    output = built("mine")
    assert "-DSIZE=4 " in output and "-DHALF=0.5 " in output


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("build.cache=there", "Write --build-cache=there."),
        ("toolchain=gcc", "Write `scons gcc`."),
        ("CC=clang", "configs/toolchain/"),
    ],
)
def test_settings_that_would_change_nothing_are_refused(
    built: Scons, setting: str, hint: str
) -> None:
    output = built(setting, code=2)
    assert f"'{setting}' is no setting of this build" in output and hint in output


def test_help_describes_a_program_without_a_description(tree: Path, built: Scons) -> None:
    add(tree, "mine", "kind: objects")
    assert "  mine         (objects)" in built("-h")
