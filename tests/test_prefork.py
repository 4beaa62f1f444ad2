"""A command that is forked is the command that a shell would start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from command_line import Done, Project, command, environment, forks

COMMANDS = [
    ("--version",),
    (),
    ("runn",),
    ("run", "workload=nothing", "output=json"),
    ("targets", "output=json"),
    ("plan", "workload=axpy", "output=json"),
    ("run", "workload=axpy", "output=json"),
    ("results", "output=csv"),
]


def as_new_process(project: Project, *words: str) -> Done:
    """`env` starts it, and changes nothing."""
    return project.run(*words, before=["env"])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_it_says_and_returns_the_same(shared_project: Project, words: tuple[str, ...]) -> None:
    forked, started = shared_project.run(*words), as_new_process(shared_project, *words)
    assert (forked.code, forked.stdout) == (started.code, started.stdout)
    assert forked.stderr == started.stderr


def test_it_sees_its_own_environment_and_folder(fresh_project: Project) -> None:
    for run in (fresh_project.run, lambda *words: as_new_process(fresh_project, *words)):
        found = run("doctor", "output=json").document
        assert str(fresh_project.folder) in str(found)
    assert os.getcwd() != str(fresh_project.folder)  # noqa: PTH109


def test_one_after_the_other_know_nothing_of_each_other(project: Project) -> None:
    project.add("good")
    assert project.json("run", "workload=good").trial["status"] == "ok"
    project.add("good", "y[0] = 1;")
    assert project.json("run", "workload=good").trial["status"] == "wrong"


def test_what_is_read_at_the_start_needs_a_new_interpreter(tmp_path: Path) -> None:
    usual = environment(tmp_path)
    assert forks().request(["--version"], tmp_path, usual)
    assert forks().request(["--version"], tmp_path, usual | {"PATH": "/nowhere", "TERM": "dumb"})
    for name in ("PYTHONPATH", "PYTHONUTF8", "LC_ALL", "LD_PRELOAD", "OMP_NUM_THREADS"):
        assert forks().request(["--version"], tmp_path, usual | {name: "other"}) is None
    assert forks().request(["x" * 200_000], tmp_path, usual) is None


def test_ctrl_c_reaches_commands_however_the_tests_were_started() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert command("run")[1:] == ["-m", "kernloom", "run"]
