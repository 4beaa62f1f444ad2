"""Every word of a command line is parsed once, whoever wants to know something of it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from command_line import PATIENCE_S, Project, environment

SPY = """\
import json, sys
from kernloom.cli.main import main
from kernloom.config import override_parser

parsed = []


def spied(parse):
    def spy(word, *arguments, **options):
        parsed.append(word)
        return parse(word, *arguments, **options)

    return spy


for name in ("parse_override", "parse_for_hydra"):
    setattr(override_parser, name, spied(getattr(override_parser, name)))
code = main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(parsed, file)
sys.exit(code)
"""
ONE = ["workload=axpy", "case=small", "workload.about='a, b'", "store.path=trials.db"]
"""A group, a value, one that only Hydra's parser can read, and a path."""
SWEEP = [*ONE, "seed=1,2", "++screen.keep=0"]


def parsed_by(project: Project, *words: str) -> list[str]:
    """What a command parses."""
    report = project.folder / "parsed.json"
    done = subprocess.run(
        [sys.executable, "-c", SPY, str(report), *words],
        cwd=project.folder,
        env=environment(project.home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(report.read_text())
    return found


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["run"], [*ONE, "measure=quick"]),
        (["run", "-m"], [*SWEEP, "measure=quick"]),
        (["plan"], ONE),
        (["plan", "-m"], SWEEP),
        (["build"], ONE),
        (["explain"], ONE),
        (["check"], ONE),
        (["check", "-m"], SWEEP),
    ],
    ids=" ".join,
)
def test_a_command_parses_each_word_once(
    project: Project, command: list[str], words: list[str]
) -> None:
    assert parsed_by(project, *command, *words) == words


def test_compare_parses_each_word_once(project: Project) -> None:
    project.run("run", "workload=axpy", "case=small", "measure=quick", "store.path=trials.db")
    common = ["workload=axpy", "case=small", "measure=quick"]
    compared = ["--with", " ".join(common), "seed=1", "seed=2", "store.path=trials.db"]
    found = parsed_by(project, "compare", *compared)
    assert sorted(found) == sorted([*common, "seed=1", "seed=2", "store.path=trials.db"])


def test_results_parse_no_more_than_the_store(project: Project) -> None:
    project.run("run", "workload=axpy", "case=small", "measure=quick", "store.path=trials.db")
    found = parsed_by(project, "results", "workload=axpy", "store.path=trials.db")
    assert found == ["store.path=trials.db"]


def test_a_stored_trial_is_parsed_once_when_it_is_read_back(project: Project) -> None:
    words = ["workload=axpy", "case=small", "measure=quick"]
    project.run("run", *words)
    project.run("results", "baseline", "save", "main")
    assert sorted(parsed_by(project, "compare", "--baseline", "main")) == sorted(words)
