"""A store has backups, which SQLite makes; a sound one is never replaced by less than it has."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kernloom.measure.trial import Trial
from kernloom.store import backups, open_store
from kernloom.store.backups import AGE_S, Backups, backups_of
from kernloom.store.repair import repair
from kernloom.store.sqlite import count_file_of

MakeTrial = Callable[..., Trial]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup of every ten new trials, and none just because a run ends."""
    monkeypatch.setattr(backups, "NEW_TRIALS", 10)
    monkeypatch.setattr(backups, "SMALL", 0)
    monkeypatch.setattr(backups, "_is_old", lambda _: False)


def fill(path: Path, make_trial: MakeTrial, *numbers: int) -> None:
    with open_store(path) as store:
        for number in numbers:
            store.add(make_trial(f"t{number}"))


def trials_in(path: Path) -> int:
    with open_store(path) as store:
        return len(store.query())


def counts(path: Path) -> list[int]:
    return [trials_in(file) for file in backups_of(path) if file.exists()]


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


@pytest.mark.usefixtures("few")
def test_a_run_makes_backups_of_many_new_trials_and_keeps_two(
    path: Path, make_trial: MakeTrial
) -> None:
    fill(path, make_trial, *range(9))
    assert counts(path) == []
    with open_store(path) as store:
        store.add(make_trial("t9"))
        assert counts(path) == [10], "before the run ends, whatever becomes of it"
        for number in range(10, 32):
            store.add(make_trial(f"t{number}"))
    assert counts(path) == [20, 10]
    # Another run goes on where the last one stopped.
    fill(path, make_trial, *range(32, 40))
    assert counts(path) == [40, 20]
    names = {path.name, *(file.name for file in backups_of(path))}
    assert not count_file_of(path).exists(), "the backup has all"
    assert {file.name for file in path.parent.iterdir()} == names


@pytest.mark.usefixtures("few")
def test_a_larger_store_is_copied_less_often(path: Path, make_trial: MakeTrial) -> None:
    fill(path, make_trial, *range(100))
    assert counts(path) == [80, 40]


def test_a_small_store_is_backed_up_whenever_a_run_ends(path: Path, make_trial: MakeTrial) -> None:
    for number in range(3):
        fill(path, make_trial, number)
        assert counts(path)[0] == number + 1
    last = backups_of(path)[0].stat().st_ino
    trials_in(path)
    assert backups_of(path)[0].stat().st_ino == last, "nothing is new in this run"


def test_a_larger_store_is_backed_up_as_time_goes_by(
    path: Path, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "SMALL", 0)
    for number in range(3):
        fill(path, make_trial, number)
    assert counts(path) == [1]
    newest = backups_of(path)[0]
    os.utime(newest, (0, newest.stat().st_mtime - AGE_S - 60))
    fill(path, make_trial, 3)
    assert counts(path) == [4, 1]


def test_a_store_that_replaces_no_backup_is_not_copied_for_every_trial(
    path: Path, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    monkeypatch.setattr(backups, "NEW_TRIALS", 10)
    monkeypatch.setattr(backups, "_copy", lambda store, fresh: tried.append(1))
    fill(path, make_trial, *range(35))
    assert len(tried) == 3, "after 10 and 20 trials, and when the run ended"


def test_a_damaged_store_replaces_no_backup(path: Path, make_trial: MakeTrial) -> None:
    with open_store(path) as store:
        for number in range(60):
            store.add(make_trial(f"t{number}", stderr="x" * 500))
    before = backups_of(path)[0].read_bytes()
    data = bytearray(path.read_bytes())
    start = len(data) // 2 & ~4095
    data[start : start + 4096] = bytes(4096)
    path.write_bytes(data)
    Backups(path).make()
    assert backups_of(path)[0].read_bytes() == before
    assert not backups_of(path)[1].exists()


@pytest.mark.usefixtures("few")
def test_the_number_of_trials_is_kept_while_a_backup_lacks_some(
    path: Path, make_trial: MakeTrial
) -> None:
    fill(path, make_trial, *range(12))
    assert counts(path) == [10]
    assert count_file_of(path).exists()
    path.write_bytes(bytes(100) + path.read_bytes()[100:])
    done = repair(path)
    assert (done.saved, done.restored, done.lost, done.more) == (10, 10, 2, False)


@pytest.mark.usefixtures("few")
def test_a_store_with_a_changed_trial_replaces_no_backup(path: Path, make_trial: MakeTrial) -> None:
    fill(path, make_trial, *range(10))
    change(path, "UPDATE trials SET seconds = 9 WHERE id = 't3'")
    with open_store(path, lambda note: None) as store:
        assert store.latest(["t3"]) == {}
        for number in range(10, 30):
            store.add(make_trial(f"t{number}"))
    assert counts(path) == [10]


def test_a_store_that_lacks_trials_of_its_backup_does_not_replace_it(
    path: Path, make_trial: MakeTrial
) -> None:
    fill(path, make_trial, *range(10))
    change(path, "DELETE FROM trials WHERE id = 't3'")
    fill(path, make_trial, *range(10, 30))
    Backups(path).make()
    assert counts(path) == [10]


def test_a_damaged_backup_is_replaced(path: Path, make_trial: MakeTrial) -> None:
    fill(path, make_trial, *range(10))
    newest, older = backups_of(path)
    newest.write_text("nothing")
    Backups(path).make()
    assert trials_in(newest) == 10
    assert older.read_text() == "nothing"


def test_a_backup_that_cannot_be_made_hinders_nothing(
    path: Path, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        fill(path, make_trial, 0)
    assert trials_in(path) == 1
    names = {file.name for file in path.parent.iterdir()}
    assert names == {path.name, count_file_of(path).name}


def test_what_a_killed_process_left_of_a_backup_is_removed(
    path: Path, make_trial: MakeTrial
) -> None:
    fill(path, make_trial, 0)
    left = path.with_name(f"{path.name}.backup-1234.new")
    other = path.with_name(f"{path.name}.backup-5678.new")
    for file in (left, other):
        file.touch()
    os.utime(left, (0, 0))
    fill(path, make_trial, 1)
    assert not left.exists() and other.exists()
