"""Nothing that was added is lost, whatever happens to the process and whoever else writes."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys

import pytest

from kernloom.errors import StoreError
from kernloom.store import open_store

WRITER = """
import sys
from pathlib import Path
from kernloom.measure.trial import Samples, Trial
from kernloom.store import open_store

store = open_store(Path(sys.argv[1]))
name, count = sys.argv[2], int(sys.argv[3])
taken = (Samples(1, (1.0, 2.0), (1.0, 2.0), (0, 0)),)
for number in range(count):
    id = name if name == "same" else f"{name}-{number}"
    trial = Trial(id=id, workload="w", case="c", target="t", status="ok", verified=True,
                  stderr="x" * 2000, samples=taken)
    store.add(trial)
    print(trial.id, flush=True)
"""


@pytest.fixture
def start_writer(path, environment):
    """Start a process that adds trials and prints the id of each one added."""

    def start(name: str, count: int) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", WRITER, str(path), name, str(count)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)

    return start


@pytest.mark.parametrize("after", [1, 40, 173])
def test_all_added_trials_are_there_after_kill_9(path, make_trial, start_writer, after):
    writer = start_writer("victim", 100_000)
    said = [writer.stdout.readline().strip() for _ in range(after)]
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.read().split()
    assert writer.wait() == -signal.SIGKILL
    with open_store(path) as store:
        found = {trial.id for trial in store.query()}
        assert set(said) <= found
        assert len(found) <= len(said) + 1
        assert all(len(store.samples(id)) == 1 for id in found)
        store.add(make_trial("survivor"))
        assert "survivor" in store.latest(["survivor"])
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_writer_killed_while_it_makes_the_store_is_no_harm(path, make_trial, start_writer):
    writer = start_writer("victim", 100_000)
    while not path.exists() and writer.poll() is None:
        os.sched_yield()
    writer.kill()
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    with open_store(path) as store:
        store.query()
        store.add(make_trial())
        assert "a1" in store.latest(["a1"])


def test_several_processes_write_a_new_store_at_once(path, start_writer):
    writers = [start_writer(name, 100) for name in ("one", "two", "three")]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    with open_store(path) as store:
        assert len(store.query()) == 300


def test_attempts_of_one_trial_by_two_processes_are_all_kept(path, start_writer):
    writers = [start_writer("same", 100) for _ in range(2)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    with open_store(path) as store:
        assert len(store.query(history=True)) == 200
        assert len(store.query({"attempt": "200"})) == 1


def test_a_disk_that_takes_no_more_is_an_error_and_keeps_what_was_stored(path, make_trial):
    with open_store(path) as store:
        store.add(make_trial("before"))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        try:
            with pytest.raises(StoreError) as caught:
                for number in range(100):
                    store.add(make_trial(f"t{number}", stderr="x" * 10_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert str(path) in str(caught.value)
        store.add(make_trial("after"))
        assert set(store.latest(["before", "after"])) == {"before", "after"}
