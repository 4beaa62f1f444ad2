"""Completion typed into real shells, and their scripts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command_line import Project, environment, listing
from kernloom.cli.completion import protocol
from parts import needs
from source_tree import copy_tree
from terminal import Terminal

START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SOURCE = {
    "bash": "source <(kernloom completion bash)",
    "zsh": "PS1='> '; source <(kernloom completion zsh)",
    "fish": "kernloom completion fish | source",
}
SCRIPTS = Path(protocol.__file__).parent / "scripts"
Start = Callable[..., Terminal]


@pytest.fixture
def project(fresh_project: Project) -> Project:
    """A project with a workload of its own and a few files."""
    fresh_project.add("mine")
    fresh_project.write("recipes/mlp.yaml", "")
    fresh_project.write("recipes/mlp.txt", "")
    return fresh_project


@pytest.fixture
def shell_environment(project: Project) -> dict[str, str]:
    """`kernloom` is on the PATH, as an installed one would be."""
    program = project.home / "bin" / "kernloom"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m kernloom "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return environment(project.home, PATH=path, TERM="xterm", PS1="> ")


@pytest.fixture
def start(project: Project, shell_environment: dict[str, str]) -> Iterator[Start]:
    """Starts a shell that has sourced its script."""
    started: list[Terminal] = []

    def start(shell: str, *, cwd: Path | None = None, more: str = "true") -> Terminal:
        needs(shell)
        terminal = Terminal(START[shell], cwd or project.folder, shell_environment)
        started.append(terminal)
        terminal.type(f"{SOURCE[shell]}; {more}; echo rea''dy\n")
        terminal.wait_for("ready\n")
        return terminal

    yield start
    for terminal in started:
        terminal.__exit__(None, None, None)


# Bash's own machinery


def replies(env: dict[str, str], cwd: Path, words: list[str], line: str = "") -> list[str]:
    """COMPREPLY after the function was called as bash calls it at the end of a line."""
    line = line or "".join(words)
    script = [
        f"source {shlex.quote(str(SCRIPTS / 'kernloom.bash'))}",
        f"COMP_WORDS=({' '.join(shlex.quote(word) for word in words if word != ' ')})",
        f"COMP_CWORD=$(({len([word for word in words if word != ' '])} - 1))",
        f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)} COMP_TYPE=9",
        "_kernloom",
        "printf '%s\\n' \"${COMPREPLY[@]}\"",
    ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["kernloom", " ", "ru"], ["run"]),
        (["kernloom", " ", "run", " ", "workl"], ["workload="]),
        # Bash splits at = and :, and replaces only what follows.
        (["kernloom", " ", "run", " ", "workload", "=", "mat"], ["matmul"]),
        (["kernloom", " ", "run", " ", "measure", "="], ["quick", "rigorous", "standard"]),
        (["kernloom", " ", "run", " ", "toolchain", "=", "gcc,clang_"], ["gcc,clang_riscv64"]),
        (["kernloom", " ", "run", " ", "workload", "=", "mi"], ["mine"]),
        (
            ["kernloom", " ", "run", " ", "workload", "=", "mlp", " ", "workload.sizes.b"],
            ["workload.sizes.batch="],
        ),
        (["kernloom", " ", "run", " ", "recipe", "=", "recipes/m"], ["recipes/mlp.yaml"]),
        (["kernloom", " ", "recipe", " ", "run", " ", "rec"], ["recipes"]),
        (
            ["kernloom", " ", "results", " ", "--to", "=", "recipes/"],
            ["recipes/mlp.txt", "recipes/mlp.yaml"],
        ),
        (["kernloom", " ", "results", " ", "status", "=", "ok,wr"], ["ok,wrong"]),
        (["kernloom", " ", "compare", " ", "'workload=mlp cas"], ["workload=mlp case="]),
        (["kernloom", " ", "run", " ", "nothing", ":", "like"], []),
        (["kernloom", " ", "run", " ", "$(touch", " ", "oops)"], []),
        (["kernloom", " ", "nonsense", " ", ""], []),
    ],
    ids=lambda value: "".join(value),
)
def test_replies_to_bash(
    project: Project, shell_environment: dict[str, str], words: list[str], expected: list[str]
) -> None:
    assert sorted(replies(shell_environment, project.folder, words)) == expected
    assert not (project.folder / "oops").exists()


def test_a_program_that_fails_leaves_nothing_on_the_terminal(
    project: Project, shell_environment: dict[str, str]
) -> None:
    program = project.home / "bin" / "kernloom"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    assert replies(shell_environment, project.folder, ["kernloom", " ", "ru"]) == []
    program.unlink()
    assert replies(shell_environment, project.folder, ["kernloom", " ", "ru"]) == []


# Typed


@pytest.mark.parametrize("shell", START)
def test_what_is_typed_is_completed(shell: str, start: Start, project: Project) -> None:
    before = listing(project.folder)
    terminal = start(shell)
    terminal.type("kernloom run workl\t")
    shown = terminal.wait_for("kernloom run workload=")
    assert "error" not in shown
    terminal.type("min\t")
    terminal.wait_for("mine ")
    terminal.type("workload.sizes.\t")
    terminal.wait_for("workload.sizes.n=")
    assert listing(project.folder) == before


@pytest.mark.parametrize("shell", START)
def test_candidates_are_listed(shell: str, start: Start) -> None:
    terminal = start(shell)
    terminal.type("kernloom run workload=s\t\t")
    shown = terminal.wait_for("softmax", "stencil5", "sum")
    if shell != "bash":
        terminal.wait_for("each row as probabilities")
    assert "Traceback" not in shown


@pytest.mark.parametrize("before", ["recipe run ", "run recipe="])
@pytest.mark.parametrize("shell", START)
def test_names_of_files_are_completed(shell: str, before: str, start: Start) -> None:
    terminal = start(shell)
    terminal.type(f"kernloom {before}recipes/m\t")
    terminal.wait_for(f"{before}recipes/mlp.yaml ")


@pytest.mark.parametrize("shell", START)
def test_several_values_are_completed(shell: str, start: Start) -> None:
    terminal = start(shell)
    terminal.type("kernloom run -m toolchain=gcc,clang_\t")
    terminal.wait_for("toolchain=gcc,clang_riscv64 ")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("kernloom compare 'workload=softmax toolc\t", "'workload=softmax toolchain="),
        ("cd /; FOO=1 kernloom run workload=ml\t", "workload=mlp "),
        ("~/bin/kernloom run rer\t", "rerun="),
        ("kernloom run toolchain=cla  case=small\x1bb\x1bb\x02\x02\t", "\x08ng"),
    ],
)
def test_odd_lines_in_bash(start: Start, typed: str, expected: str) -> None:
    terminal = start("bash")
    terminal.type(typed)
    terminal.wait_for(expected)


def test_bash_without_the_equals_sign_among_its_word_breaks(start: Start) -> None:
    terminal = start("bash", more="COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}")
    terminal.type("kernloom run workload=mat\t")
    terminal.wait_for("workload=matmul ")


def test_outside_of_any_project_there_are_the_shipped_options(start: Start, tmp_path: Path) -> None:
    terminal = start("bash", cwd=tmp_path)
    terminal.type("kernloom run workload=stenc\t")
    terminal.wait_for("workload=stencil5 ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "project"]


def test_the_script_of_the_source_tree_is_completed(
    tmp_path_factory: pytest.TempPathFactory, start: Start
) -> None:
    tree = copy_tree(tmp_path_factory.mktemp("clone"))
    (tree.folder / "configs/workload/only_here.yaml").write_text("about: in this tree\n")
    terminal = start("bash", cwd=tree.folder)
    terminal.type("./kernloom run workload=only\t")
    terminal.wait_for("workload=only_here ")
    assert not (tree.folder / "build").exists()


@pytest.mark.parametrize("shell", START)
def test_the_scripts_have_no_errors_of_syntax(shell: str) -> None:
    needs(shell)
    subprocess.run([shell, "-n", SCRIPTS / f"kernloom.{shell}"], check=True)
