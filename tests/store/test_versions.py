"""Stores of earlier versions are read, and where possible brought up to date."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kernloom.base.errors import StoreError
from kernloom.measure.trial import Samples
from kernloom.plan.planned import groups_of
from kernloom.store import open_store
from kernloom.store.repair import repair
from kernloom.store.schema import VERSION
from postgres import QUOTED

HERE = Path(__file__).parent
PAGE = 4096
PLACED = """
ALTER TABLE trials ADD COLUMN placement TEXT NOT NULL DEFAULT '{}';
ALTER TABLE samples ADD COLUMN transfer_ns TEXT NOT NULL DEFAULT '[]';
UPDATE meta SET value = '2' WHERE key = 'schema_version';
"""
FACTS = {"shared": {"measure": {"samples": 7}}, "run": {"seed": 7}}
SOURCES = {"matmul:host": {"m.j2": "1"}}
OLD = {
    "1": ("version1.sql", ""),
    "1, brought up to the first 2": ("version1.sql", PLACED),
    "the first 2": ("version2.sql", ""),
    "the second 2": ("version2_baselines.sql", ""),
    "3": ("version3.sql", ""),
}


@pytest.fixture(params=list(OLD))
def old(request: pytest.FixtureRequest, path: Path) -> Path:
    """A store that an earlier version wrote."""
    file, then = OLD[request.param]
    path.parent.mkdir(parents=True)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript((HERE / file).read_text(encoding="utf-8") + then)
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
        assert [name for name, _, _ in store.baselines()] in ([], ["first"])
        assert store.reuses(["a1"]) == {}
        assert store.screenings(["a1"]) == {}
        assert store.facts("axpy", "host", 9) == []
        assert store.sources() == ([], {})


def test_peers_stored_under_their_earlier_name_are_found(path, make_trial):
    policy = {"name": "standard", "baselines": ["numpy"], "samples": 9}
    earlier = make_trial(
        "e5",
        metrics={"median_ns": 2.0, "baselines": {"numpy": {"ratio": 1.5}}},
        config={"workload": {"sizes": {"baselines": 3}}, "measure": policy},
        point={"measure.baselines": ["numpy"]},
        facts={"shared": {"measure": policy}, "baselines": {"numpy": "f0"}},
    )
    with open_store(path) as store:
        store.add(earlier)
    with open_store(path) as store:
        (trial,) = store.query({"peers.numpy.ratio": "1.5", "measure.peers": "[numpy]"})
        assert trial.metrics["peers"] == {"numpy": {"ratio": 1.5}}
        assert trial.point == {"measure.peers": ["numpy"]}
        assert trial.config["measure"] == {"name": "standard", "peers": ["numpy"], "samples": 9}
        assert trial.config["workload"] == earlier.config["workload"]
        ((_, facts),) = store.facts("matmul", "host", 1)
        groups = groups_of(facts)
        assert (groups["measure"]["peers"], groups["peers"]) == (["numpy"], {"numpy": "f0"})


def test_an_older_store_is_read_again_after_it_was_closed(either):
    store = open_store(either)
    for _ in range(2):
        with store:
            assert len(store.query()) == 2
            assert store.latest(["a1"])["a1"].overrides == ()


def test_an_older_store_goes_on_with_new_trials(old, make_trial):
    placed = make_trial(
        "c3",
        placement={"y": "in_place"},
        metrics={},
        overrides=("seed=7",),
        facts=FACTS,
        sources=SOURCES,
    )
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
        store.count_reuses(["a1"])
        assert store.reuses(["a1"]) == {"a1": 1}
        assert store.facts("matmul", "host", 9) == [("c3", placed.facts)]
        (used,), of_trials = store.sources()
        assert (used.files, of_trials) == (placed.sources, {"c3": used.document})
        store.save_screenings({"l1": placed})
        assert store.screenings(["l1"])["l1"]["status"] == "ok"
    with sqlite3.connect(old) as database:
        version = database.execute("SELECT value FROM meta WHERE key = 'schema_version'")
        assert version.fetchone() == (str(VERSION),)


@pytest.mark.parametrize("brought_up", [False, True])
def test_a_damaged_older_store_is_saved_with_all_that_it_has(old, make_trial, brought_up):
    if brought_up:
        with open_store(old) as store:
            store.add(make_trial("c3", facts=FACTS, sources=SOURCES))
            before = {trial.id: trial for trial in store.query()}
            sources = store.sources()
    with closing(sqlite3.connect(old)) as database:
        find = "SELECT rootpage FROM sqlite_master WHERE name = 'trials_by_time'"
        index = database.execute(find).fetchone()[0]
    data = bytearray(old.read_bytes())
    data[(index - 1) * PAGE : index * PAGE] = bytes(PAGE)
    old.write_bytes(data)
    done = repair(old)
    assert (done.saved, done.lost) == ((4, 0) if brought_up else (3, 0))
    with open_store(old) as store:
        assert store.latest(["a1"])["a1"].placement == {"x": "copied"}
        assert len(store.samples("a1")) == 1
        if brought_up:
            assert {trial.id: trial for trial in store.query()} == before
            assert store.facts("matmul", "host", 9) == [("c3", FACTS)]
            assert store.sources() == sources


def test_a_store_on_a_server_is_brought_up_with_all_that_it_lacks(server, make_trial):
    server.execute("CREATE SCHEMA elder")
    place = server.url(query="?options=-csearch_path%3Delder")
    with open_store(place) as store:
        store.add(make_trial())
    server.execute("UPDATE elder.meta SET value = '2' WHERE key = 'schema_version'")
    for column in ("overrides", "warnings", "facts"):
        server.execute(f"ALTER TABLE elder.trials DROP COLUMN {column}")
    for table in ("looks", "reuses", "baselines", "sources"):
        server.execute(f"DROP TABLE elder.{table}")
    with open_store(place) as store:
        assert store.query() == [make_trial()]
        assert store.baselines() == []
        store.count_reuses(["a1"])
        store.save_screenings({"l1": make_trial()})
        assert set(store.screenings(["l1"])) == {"l1"}
        assert store.reuses(["a1"]) == {"a1": 1}
        assert store.sources() == ([], {})
        store.add(make_trial("b2", facts=FACTS, sources=SOURCES))
        assert store.facts("matmul", "host", 9) == [("b2", FACTS)]
    assert server.execute("SELECT value FROM elder.meta WHERE key = 'schema_version'") == [
        (str(VERSION),)
    ]


def test_a_store_that_lacks_nothing_but_the_number_is_read_by_those_who_may_not_write(
    server, make_trial
):
    server.execute("CREATE SCHEMA numbered")
    place = server.url(query="?options=-csearch_path%3Dnumbered")
    with open_store(place) as store:
        store.add(make_trial())
    server.execute("UPDATE numbered.meta SET value = '2' WHERE key = 'schema_version'")
    server.execute("CREATE ROLE guest LOGIN PASSWORD 'hunter2'")
    server.execute("GRANT USAGE ON SCHEMA numbered TO guest")
    server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA numbered TO guest")
    as_guest = place.replace(f"loom:{QUOTED}", "guest:hunter2")
    with open_store(as_guest) as store:
        assert len(store.query()) == 1
    server.execute("ALTER TABLE numbered.trials DROP COLUMN overrides")
    with open_store(as_guest) as store, pytest.raises(StoreError, match="older Kernloom"):
        store.query()
    with open_store(place) as store:
        assert store.query() == [make_trial()]
    with open_store(as_guest) as store:
        assert len(store.query()) == 1
