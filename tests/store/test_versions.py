"""Stores of earlier versions are read, and where possible brought up to date."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from kernloom.measure.trial import Samples
from kernloom.store import open_store
from kernloom.store.salvage import salvage

OLD = Path(__file__).parent / "version1.sql"


@pytest.fixture
def old(path: Path) -> Path:
    """A store that version 1 wrote."""
    path.parent.mkdir(parents=True)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(OLD.read_text(encoding="utf-8"))
    database.close()
    return path


@pytest.fixture(params=["writable", "read-only"])
def either(request, old, monkeypatch):
    if request.param == "read-only":
        # Even for those whom no permissions hold back.
        monkeypatch.setattr(os, "access", lambda *_: False)
    return old


def test_an_older_store_is_read(either):
    with open_store(either) as store:
        found = store.latest(["a1", "b2"])
        trial = found["a1"]
        assert (trial.status, trial.verified, trial.workload) == ("ok", True, "axpy")
        assert trial.metrics == {"median_ns": 2.0, "deterministic": []}
        assert trial.placement == {"x": "copied"}
        assert trial.config["workload"] == {
            "name": "axpy",
            "sizes": {"N": 1000},
            "dtype": "float32",
        }
        assert (trial.warnings, trial.conditions, trial.overrides) == ((), {}, ())
        assert store.samples("a1") == (Samples(10, (1.5, 2.25), (1.25, 2.0), (0, 1)),)
        assert found["b2"].stderr == "no end"


def test_an_older_store_is_queried_like_any_other(either):
    with open_store(either) as store:
        assert [trial.id for trial in store.query({"seed": "7"})] == ["a1"]
        assert [trial.id for trial in store.query({"lanes": "8"})] == ["a1"]
        assert [trial.status for trial in store.query({"id": "a1"}, history=True)] == [
            "ok",
            "crashed",
        ]
        assert store.baselines() == []


def test_an_older_store_goes_on_with_new_trials(old, make_trial):
    placed = make_trial("c3", placement={"y": "in_place"}, metrics={}, overrides=("seed=7",))
    with open_store(old) as store:
        before = store.latest(["a1"])["a1"]
        store.add(placed)
        store.add(make_trial("a1", status="wrong", verified=False))
    with open_store(old) as store:
        assert store.latest(["c3"]) == {"c3": placed}
        assert [trial.status for trial in store.query({"id": "a1"}, history=True)][-2:] == [
            "ok",
            "crashed",
        ]
        assert before in store.query(history=True)
        store.save_baseline("main", ["a1"])
    with sqlite3.connect(old) as database:
        version = database.execute("SELECT value FROM meta WHERE key = 'schema_version'")
        assert version.fetchone() == ("2",)


@pytest.mark.parametrize("brought_up", [False, True])
def test_a_damaged_older_store_is_saved_with_all_that_it_has(old, make_trial, brought_up):
    if brought_up:
        with open_store(old) as store:
            store.add(make_trial("c3"))
            before = {trial.id: trial for trial in store.query()}
    data = bytearray(old.read_bytes())
    data[:100] = bytes(100)
    old.write_bytes(data)
    done = salvage(old)
    assert (done.saved, done.lost) == ((4, 0) if brought_up else (3, 0))
    with open_store(old) as store:
        assert store.latest(["a1"])["a1"].placement == {"x": "copied"}
        assert len(store.samples("a1")) == 1
        if brought_up:
            assert {trial.id: trial for trial in store.query()} == before
