"""Nothing that was added is lost, whatever happens to the process and whoever else writes."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kernloom.base.errors import StoreError, StoreLostError
from kernloom.store import open_store

WRITER = """
import sys
from pathlib import Path
from kernloom.measure.trial import Samples, Trial
from kernloom.store import open_store

place = sys.argv[1]
store = open_store(place if "://" in place else Path(place))
name, count = sys.argv[2], int(sys.argv[3])
taken = (Samples(1, (1.0, 2.0), (1.0, 2.0), (0, 0)),)
for number in range(count):
    id = f"same-{number % 5}" if name == "same" else f"{name}-{number}"
    trial = Trial(id=id, workload="w", case="c", target="t", status="ok", verified=True,
                  stderr="x" * 2000, samples=taken,
                  config={"seed": number, "large": {str(n): "y" * 40 for n in range(20)}})
    store.add(trial)
    print(trial.id, flush=True)
"""


@pytest.fixture
def start_writer(place, environment):
    """Start a process that adds trials and prints the id of each one added."""

    def start(name: str, count: int) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", WRITER, str(place), name, str(count)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)

    return start


@pytest.mark.parametrize("after", [1, 40, 173])
def test_all_added_trials_are_there_after_kill_9(place, make_trial, start_writer, after):
    writer = start_writer("victim", 100_000)
    said = [writer.stdout.readline().strip() for _ in range(after)]
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.read().split()
    assert writer.wait() == -signal.SIGKILL
    with open_store(place) as store:
        found = {trial.id for trial in store.query()}
        assert set(said) <= found
        assert len(found) <= len(said) + 1
        assert all(len(store.samples(id)) == 1 for id in found)
        store.add(make_trial("survivor"))
        assert "survivor" in store.latest(["survivor"])
    if isinstance(place, Path):
        with sqlite3.connect(place) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_writer_killed_while_it_makes_the_store_is_no_harm(place, make_trial, start_writer):
    writer = start_writer("victim", 100_000)
    while not place.exists() and writer.poll() is None:
        os.sched_yield()
    writer.kill()
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    with open_store(place) as store:
        store.query()
        store.add(make_trial())
        assert "a1" in store.latest(["a1"])


def test_several_processes_write_a_new_store_at_once(place, start_writer):
    writers = [start_writer(name, 100) for name in ("one", "two", "three")]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    with open_store(place) as store:
        assert len(store.query()) == 300


def test_every_attempt_of_the_same_trials_by_four_processes_has_its_own_number(place, start_writer):
    writers = [start_writer("same", 50) for _ in range(4)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    with open_store(place) as store:
        assert len(store.query(history=True)) == 200
        for number in range(1, 41):
            assert len(store.query({"attempt": str(number)}, history=True)) == 5
        newest = store.query({"attempt": "40"})
        assert {trial.id for trial in newest} == {f"same-{number}" for number in range(5)}
        assert all(len(store.samples(trial.id)) == 1 for trial in newest)
        assert all(trial.config["large"]["19"] == "y" * 40 for trial in newest)


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


@pytest.mark.parametrize("end", ["deleted", "moved", "replaced"])
def test_a_store_that_loses_its_name_while_it_is_used_is_an_error(path, make_trial, end):
    with open_store(path) as store:
        store.add(make_trial("before"))
        files = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
        for file in files:
            file.rename(file.with_name(f"away{file.name}"))
        if end == "replaced":
            path.write_bytes(b"")
        with pytest.raises(StoreLostError, match="replaced" if end == "replaced" else "deleted"):
            store.add(make_trial("after"))
        if end == "moved":
            for file in files:
                if file.with_name(f"away{file.name}").exists():
                    file.with_name(f"away{file.name}").rename(file)
        store.add(make_trial("next"))
        expected = {"before", "next"} if end == "moved" else {"next"}
        assert set(store.latest(["before", "after", "next"])) == expected
