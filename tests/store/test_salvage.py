"""A damaged store is noticed and said, and whatever can be read of it is saved."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from kernloom.errors import StoreError
from kernloom.store import open_store
from kernloom.store.pages import PAGE_SIZE
from kernloom.store.salvage import salvage
from kernloom.store.sqlite import wal_of

COUNT = 300


@pytest.fixture
def trials(make_trial, two_processes):
    """Some small, some larger than a page, all sharing most of their config."""
    sections = {f"stage{n}": {"use": "x" * 50, "in": n} for n in range(10)}
    return {
        f"t{n:03}": make_trial(
            f"t{n:03}",
            stderr="e" * (9000 if n % 20 == 0 else 200),
            config={"pipeline": {"stages": sections}, "seed": n},
            created=f"2025-01-01T00:00:00.{n:03}+00:00",
            samples=two_processes,
        )
        for n in range(COUNT)
    }


@pytest.fixture
def written(path, trials):
    with open_store(path) as store:
        for trial in trials.values():
            store.add(trial)
        store.save_baseline("main", ["t001", "t299"])
    return path


def changed(path, start, bytes_):
    data = bytearray(path.read_bytes())
    data[start : start + len(bytes_)] = bytes_
    path.write_bytes(data)


def refused(path):
    """The store says that it is damaged, and how to go on."""
    with open_store(path) as store, pytest.raises(StoreError, match="damaged") as caught:
        store.query()
    assert "kernloom results repair" in caught.value.hint


def check(path, trials, done):
    """All that was saved is as it was, and the store is sound again."""
    with open_store(path) as store:
        found = {trial.id: trial for trial in store.query()}
        assert len(found) == done.saved
        for id, trial in found.items():
            assert trial == replace(trials[id], samples=())
            assert store.samples(id) in ((), trials[id].samples)
        store.add(replace(trials["t000"], id="after"))
    assert done.kept.exists()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert salvage(path).kept is None


def test_a_sound_store_is_left_as_it_is(written):
    before = written.read_bytes()
    done = salvage(written)
    assert (done.saved, done.lost, done.kept) == (COUNT, 0, None)
    assert written.read_bytes() == before
    assert [file.name for file in written.parent.iterdir()] == [written.name]


def test_of_a_truncated_store_the_trials_in_front_are_saved(written, trials):
    whole = written.read_bytes()
    written.write_bytes(whole[: len(whole) // 2 + 1000])
    refused(written)
    done = salvage(written)
    assert COUNT // 4 < done.saved < COUNT
    assert done.kept.read_bytes() == whole[: len(whole) // 2 + 1000]
    check(written, trials, done)


def test_of_a_damaged_page_only_its_own_trials_are_lost(written, trials):
    whole = written.read_bytes()
    leaves = [
        start
        for start in range(0, len(whole), PAGE_SIZE)
        if whole[start] == 0x0D and b'"stages": {"$"' in whole[start : start + PAGE_SIZE]
    ]
    middle = leaves[len(leaves) // 2]
    changed(written, middle, bytes(byte ^ 0x5A for byte in whole[middle : middle + 512]))
    refused(written)
    done = salvage(written)
    assert 0 < done.lost < 10
    assert done.saved + done.lost == COUNT
    assert done.incomplete == 0
    check(written, trials, done)
    with open_store(written) as store:
        assert store.baselines()[0][0] == "main"


def test_without_its_first_pages_a_store_is_saved_whole(written, trials):
    changed(written, 0, bytes(100))
    refused(written)
    done = salvage(written)
    assert (done.saved, done.lost) == (COUNT, 0)
    check(written, trials, done)


def test_a_lost_section_is_noted_in_the_trials_that_had_it(written):
    database = sqlite3.connect(written, isolation_level=None)
    database.execute("DELETE FROM documents")
    database.execute("VACUUM")
    database.close()
    refused(written)
    done = salvage(written)
    assert (done.saved, done.incomplete) == (COUNT, COUNT)
    with open_store(written) as store:
        (trial,) = store.query({"id": "t007"})
        assert set(trial.config["pipeline"]["stages"]) == {"lost"}
        assert trial.config["seed"] == 7


@pytest.fixture
def logged(path, trials, tmp_path):
    """A store as a killed process leaves it: most of it still in the write-ahead log."""
    other = tmp_path / "killed" / path.name
    other.parent.mkdir()
    with open_store(path) as store:
        for trial in trials.values():
            store.add(trial)
        for file in (path, wal_of(path)):
            shutil.copyfile(file, other.with_name(file.name))
    assert wal_of(other).stat().st_size > COUNT * PAGE_SIZE
    return other


def test_a_torn_log_costs_the_trials_in_the_torn_part_at_most(logged, trials):
    log = wal_of(logged)
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) * 2 // 3 + 17])
    with open_store(logged) as store:
        readable = len(store.query())
    assert COUNT // 3 < readable < COUNT
    with open_store(logged) as store:
        assert {trial.id for trial in store.query()} <= trials.keys()


def test_a_log_that_is_damaged_in_its_middle_gives_what_comes_after_too(logged, trials):
    log = wal_of(logged)
    middle = log.stat().st_size // 2
    changed(log, middle, bytes(64))
    done = salvage(logged)
    assert done.saved >= COUNT - 10
    assert done.kept is not None
    assert wal_of(done.kept).exists()
    check(logged, trials, done)


def test_an_emptied_store_is_saved_from_its_log(logged, trials):
    logged.write_bytes(b"")
    refused(logged)
    assert wal_of(logged).exists()
    done = salvage(logged)
    assert (done.saved, done.lost) == (COUNT, 0)
    check(logged, trials, done)


def test_an_empty_file_needs_no_repair(path):
    path.parent.mkdir(parents=True)
    path.touch()
    assert salvage(path).kept is None


def test_a_text_is_no_store_and_is_not_touched(path):
    path.parent.mkdir(parents=True)
    path.write_text("My notes.\n" * 1000)
    refused(path)
    with pytest.raises(StoreError, match="is no store"):
        salvage(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_store_that_is_in_use_is_not_repaired(written, environment):
    code = (
        "import sys; from pathlib import Path; from kernloom.store.salvage import salvage;"
        "salvage(Path(sys.argv[1]))"
    )
    with closing(sqlite3.connect(written)) as other:
        other.execute("SELECT count(*) FROM trials").fetchone()
        argv = [sys.executable, "-c", code, str(written)]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment)
    assert done.returncode != 0
    assert "in use by another process" in done.stderr
