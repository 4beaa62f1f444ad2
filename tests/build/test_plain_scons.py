"""Plain `scons` behaves as somebody who knows SCons expects."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_runtimes import DECLARATION, MAIN, run, scons, share  # noqa: F401 (a fixture)

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
    assert {path.name for path in (tree / "build").iterdir()} <= {".lock", "cache", "tmp"}
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


def hashes(tree: Path) -> dict[str, bytes]:
    folder = tree / "build/runtimes"
    return {p.parent.name: p.read_bytes() for p in folder.glob("*/runner")}


def test_checkouts_share_what_they_build(tree: Path, built: Scons, tmp_path: Path) -> None:
    cache = tmp_path / "shared"
    first = built(f"--build-cache={cache}")
    other = tmp_path / "another place"
    shutil.copytree(tree, other)
    shutil.rmtree(other / "build")
    done = scons(other, f"--build-cache={cache}")
    assert done.returncode == 0, done.stderr
    assert hashes(other) == hashes(tree) != {}
    assert run(other / RUNNER) == "42"
    assert MAIN and compiled(first)
    assert not list(other.glob("build/failed/*"))
    manifests = [json.loads(p.read_text()) for p in other.glob("build/runtimes/*/manifest.json")]
    origin = [json.loads(p.read_text()) for p in tree.glob("build/runtimes/*/manifest.json")]
    assert {m["created"] for m in manifests} <= {m["created"] for m in origin}


def test_a_damaged_entry_of_the_shared_cache_is_built_again(
    tree: Path, built: Scons, tmp_path: Path
) -> None:
    cache = tmp_path / "shared"
    built(f"--build-cache={cache}", RUNNER)
    wanted = hashes(tree)
    for path in cache.rglob("*.o"):
        path.write_bytes(b"garbage")
    for path in cache.rglob("runner"):
        if path.is_file():
            path.write_bytes(b"garbage")
    shutil.rmtree(tree / "build")
    built(f"--build-cache={cache}", RUNNER)
    assert hashes(tree) == wanted and run(tree / RUNNER) == "42"
    shutil.rmtree(tree / "build")
    built(f"--build-cache={cache}", RUNNER)
    assert hashes(tree) == wanted


def test_a_cache_that_cannot_be_written_is_said(built: Scons, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = built(f"--build-cache={tmp_path / 'file' / 'below'}", code=2)
    assert "cannot be made" in output and "Traceback" not in output


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


def test_a_program_of_a_project_is_built_from_there(tree: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "native/mine").mkdir(parents=True)
    (project / "kernloom.yaml").touch()
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
    assert run(tree / RUNNER) == "42"
    assert "no toolchain for 'plus' is on this machine" in built("plus", code=2)


def test_what_comes_from_the_cache_is_known_to_editors(
    tree: Path, built: Scons, tmp_path: Path
) -> None:
    cache = f"--build-cache={tmp_path / 'shared'}"
    built(cache)
    shutil.rmtree(tree / "build")
    built(cache)
    assert len(json.loads((tree / "build/compile_commands.json").read_text())) == 2
