"""What fleets are made of: the lock of a machine, chunks, results that survive anything."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import Project, environment
from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.config.groups import Groups
from kernloom.config.override_parser import parse_overrides
from kernloom.config.overrides import root_key
from kernloom.fleet.alone import alone
from kernloom.fleet.slurm import queue
from kernloom.fleet.slurm.fleet import chunks
from kernloom.fleet.slurm.settings import SlurmSettings
from kernloom.fleet.slurm.submission import (
    ResultReader,
    Submission,
    TaskRow,
    append_row,
)
from kernloom.fleet.slurm.trial_ids import TrialIdLog
from kernloom.measure.trial import Samples, Trial

HOLDER = """
import sys
from kernloom.fleet.alone import alone
with alone(name=sys.argv[1]):
    print("mine", flush=True)
    sys.stdin.read()
"""
SLURM = SlurmSettings("slurm")


def trial(id: str) -> Trial:
    samples = (Samples(3, (1.0, 2.0), (1.5, 2.5), (0, 1)),)
    return Trial(id, "axpy", "default", "host", "ok", True, samples=samples, warnings=("odd",))


def test_whoever_wants_to_be_alone_waits_for_the_end_of_the_other(tmp_path: Path) -> None:
    name = f"\0kernloom-test-{tmp_path}"[:100]

    def holder() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", HOLDER.replace("sys.argv[1]", repr(name))],
            env=environment(tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    first = holder()
    assert first.stdout and first.stdout.readline() == "mine\n"
    second = holder()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=0.5)
    first.kill()
    first.wait()
    assert second.stdout and second.stdout.readline() == "mine\n"
    second.communicate("")
    with alone(name=name):
        pass


def test_points_that_were_lost_come_in_smaller_chunks() -> None:
    assert chunks(range(5), {}, 2) == [[0, 1], [2, 3], [4]]
    assert chunks(range(4), {0: 1, 1: 1, 2: 0, 3: 0}, 4) == [[2, 3], [0], [1]]
    assert max(map(len, chunks(range(5000), {}, 1))) == 5, "an array has at most 1000 tasks"


def test_a_trial_comes_back_from_a_task_as_it_was(tmp_path: Path) -> None:
    submission = Submission(tmp_path, "t", (), SLURM)
    (tmp_path / "rounds").mkdir()
    round = submission.add_round([[0, 1], [2]])
    append_row(submission.results(0, 0), TaskRow(0, trial("a")))
    append_row(submission.results(0, 1), TaskRow(2, trial("c")))
    gathering = ResultReader(submission)
    assert list(gathering.rows([round], {0, 1, 2})) == [
        TaskRow(0, trial("a")),
        TaskRow(2, trial("c")),
    ]
    assert list(gathering.rows([round], {0, 1, 2})) == []
    append_row(submission.results(0, 0), TaskRow(1, trial("b")))
    assert list(gathering.rows([round], {0, 1, 2})) == [TaskRow(1, trial("b"))]
    assert submission.ended({0, 1, 2}) == {0, 1, 2}
    assert submission.ended({2}) == {2}, "files of other tasks are not read"


def test_the_store_of_a_trial_is_not_written_down_by_its_task(tmp_path: Path) -> None:
    path = tmp_path / "0-0.jsonl"
    config = {"store": {"url": "postgresql://me:S3CRET@h/d"}, "seed": 0}
    append_row(path, TaskRow(0, replace(trial("a"), config=config)))
    assert "S3CRET" not in path.read_text()
    assert "seed" in path.read_text()


def test_what_was_taken_is_known_even_if_the_last_note_is_torn(tmp_path: Path) -> None:
    submission = Submission(tmp_path, "t", (), SLURM)
    assert submission.taken() == {}
    submission.note_taken(0, replace(trial("a"), created="then"))
    (tmp_path / "taken").open("a").write("[1, ")
    assert submission.taken() == {0: "then"}


def test_a_torn_line_costs_no_other_trial(tmp_path: Path) -> None:
    submission = Submission(tmp_path, "t", (), SLURM)
    (tmp_path / "rounds").mkdir()
    round = submission.add_round([[0, 1]])
    path = submission.results(0, 0)
    path.write_text('{"point": 0, "tri')
    assert list(ResultReader(submission).rows([round], {0, 1})) == []
    append_row(path, TaskRow(1, trial("b")))
    assert list(ResultReader(submission).rows([round], {0, 1})) == [TaskRow(1, trial("b"))]


def test_the_newest_trial_of_a_plan_is_the_one_that_stands_for_it(tmp_path: Path) -> None:
    gathered = TrialIdLog(tmp_path / "place")
    assert gathered.trials() == {}
    gathered.add("sweep", "plan", "old")
    gathered.add("sweep", "plan", "new")
    (tmp_path / "place/sweep.jsonl").open("a").write('["plan", "to')
    assert gathered.trials() == {"plan": "new"}


@pytest.mark.parametrize(
    ("word", "key"),
    [("store=sqlite", "store"), ("+store.path=x", "store"), ("~a.b=c", "a"), ("a@b=c", "a")],
)
def test_the_root_key_of_a_word(word: str, key: str) -> None:
    assert root_key(word) == key
    (override,) = parse_overrides([word], Groups([]), multirun=False)
    assert override.root == key


def test_a_machine_without_slurm_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no sbatch, squeue") as caught:
        queue.check_here(SLURM)
    assert "fleet=local" in caught.value.hint


def test_missing_submitit_is_said_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in queue.PROGRAMS:
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(queue.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="submitit") as caught:
        queue.check_here(SLURM)
    assert "pip install submitit" in caught.value.hint


@pytest.mark.parametrize("options", [{"time": 5}, {"--account": "x"}, {"account": "x\nrm"}])
def test_options_that_cannot_stand_in_a_script_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"fleet\.options"):
        queue.check_settings(SlurmSettings("slurm", options=options))


@pytest.mark.parametrize(
    "words",
    [
        ("check", "workload=good", "fleet=slurm"),
        ("compare", "workload=good", "workload=axpy", "--with", "fleet=slurm"),
        ("compare", "workload=good", "workload=good fleet=slurm"),
    ],
)
def test_what_is_done_here_and_now_is_not_sent_to_a_cluster(
    shared_project: Project, words: tuple[str, ...]
) -> None:
    done = shared_project.run(*words)
    assert done.code == 2, done.stdout + done.stderr
    assert "works on this machine only" in done.stderr
