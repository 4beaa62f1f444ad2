"""A backup is of one store, and nothing worse ever replaces it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kernloom.base.errors import StoreError
from kernloom.measure.trial import Trial
from kernloom.store import open_store
from kernloom.store.backups import AGE_S, Backups, backups_of
from kernloom.store.repair import repair
from kernloom.store.sqlite import wal_of

MakeTrial = Callable[..., Trial]


def store_all(path: Path, trials: Sequence[Trial]) -> None:
    with open_store(path) as store:
        for trial in trials:
            store.add(trial)


def ids_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as store:
        return [str(id) for (id,) in store.execute("SELECT id FROM trials ORDER BY id")]


@pytest.fixture
def removed(path: Path, make_trial: MakeTrial) -> Path:
    """Where a store with three trials was, whose backup is still there."""
    store_all(path, [make_trial(f"old{n}") for n in range(3)])
    for file in (path, wal_of(path)):
        file.unlink(missing_ok=True)
    return path


def test_a_new_store_is_backed_up_however_many_trials_an_earlier_one_had(
    removed: Path, make_trial: MakeTrial
) -> None:
    store_all(removed, [make_trial("new0"), make_trial("new1")])
    first, second = backups_of(removed)
    assert ids_in(first) == ["new0", "new1"] and ids_in(second) == ["old0", "old1", "old2"]


def test_a_repair_takes_no_trials_from_the_backup_of_an_earlier_store(
    removed: Path, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backups, "make", lambda self: None)
    store_all(removed, [make_trial("new0"), make_trial("new1")])
    whole = removed.read_bytes()
    removed.write_bytes(whole[:100] + b"x" * (len(whole) - 100))
    with pytest.raises(StoreError, match="nothing in it can be read"):
        repair(removed)


def test_an_altered_row_never_replaces_a_backup(path: Path, make_trial: MakeTrial) -> None:
    store_all(path, [make_trial("a"), make_trial("b")])
    with closing(sqlite3.connect(path)) as store:
        store.execute("UPDATE trials SET message = 'altered' WHERE id = 'a'")
        store.commit()
    store_all(path, [make_trial("c"), make_trial("d")])
    with closing(sqlite3.connect(backups_of(path)[0])) as backup:
        found = backup.execute("SELECT message FROM trials WHERE id = 'a'").fetchone()
    assert found != ("altered",)
    assert repair(path).lost == 0


def test_a_store_that_was_removed_meanwhile_is_neither_created_nor_backed_up(removed: Path) -> None:
    good = backups_of(removed)[0].read_bytes()
    Backups(removed).make()
    assert not removed.exists() and backups_of(removed)[0].read_bytes() == good


def test_a_backup_that_vanishes_while_a_run_ends_is_no_failure(
    path: Path, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all(path, [make_trial("a")])
    last = backups_of(path)[0]
    os.utime(last, (time.time() - 2 * AGE_S,) * 2)
    exists = Path.exists

    def and_is_gone(self: Path, **how: Any) -> bool:
        found = exists(self, **how)
        if self == last:
            last.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "exists", and_is_gone)
    store_all(path, [make_trial("b")])


def test_a_repair_that_cannot_write_says_so(
    path: Path, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all(path, [make_trial(f"t{n}", stderr="e" * 5000) for n in range(20)])
    for backup in backups_of(path):
        backup.unlink(missing_ok=True)
    whole = bytearray(path.read_bytes())
    whole[-4096:] = bytes(4096)
    path.write_bytes(bytes(whole))

    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("kernloom.store.repair._Merged.write", full)
    with pytest.raises(StoreError, match="cannot be repaired: database or disk is full"):
        repair(path)
    assert path.read_bytes() == bytes(whole)
