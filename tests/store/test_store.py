"""Trials come back as they were stored, and reading leaves no trace."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernloom.base.errors import StoreError, UsageError
from kernloom.measure.trial import Samples
from kernloom.store import open_store
from kernloom.store.backups import backups_of
from kernloom.store.schema import TABLES


def test_reading_a_missing_store_finds_nothing_and_creates_nothing(path):
    with open_store(path) as store:
        assert store.latest(["a1"]) == {}
        assert store.query() == []
        assert store.samples("a1") == ()
    assert not path.parent.exists()


RUN = """
import sys
from pathlib import Path
from kernloom.measure.trial import Samples, Trial
from kernloom.store import open_store

taken = (Samples(1, (1.0,), (1.0,), (0,)),)
trial = Trial("a1", "w", "c", "t", "ok", True, config={"large": {"text": "x" * 999}}, samples=taken)
for _ in range(2):
    with open_store(Path(sys.argv[1])) as store:
        store.latest(["a1"])
        store.add(trial)
        store.count_reuses(["a1"])
        assert store.latest(["a1"])["a1"].config == trial.config
        assert store.samples("a1") == taken
"""


def modules_after(code, path, environment):
    code = f"{RUN}{code}\nprint(*sys.modules)"
    argv = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(argv, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


def test_asking_a_file_imports_nothing_of_a_server(path, environment):
    ask = "assert len(open_store(Path(sys.argv[1])).query({'workload': 'w'})) == 1"
    modules = modules_after(ask, path, environment)
    assert not {"psycopg", "sqlalchemy", "kernloom.store.postgres"} & set(modules)


SQLITE_COLUMNS = """
SELECT name, lower(type) AS type, "notnull" AS filled, pk FROM pragma_table_info('{table}')
ORDER BY cid
"""
POSTGRES_COLUMNS = """
SELECT attname AS name, format_type(atttypid, -1) AS type, attnotnull AS filled,
coalesce(array_position(conkey, attnum), 0) AS pk
FROM pg_attribute LEFT JOIN pg_constraint ON conrelid = attrelid AND contype = 'p'
WHERE attrelid = CAST('{table}' AS regclass) AND attnum > 0 ORDER BY attnum
"""
INDEXES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    "postgres": "SELECT indexname AS name FROM pg_indexes WHERE schemaname = current_schema() "
    "AND indexname NOT LIKE '%_pkey'",
}
TYPES = {
    "sqlite": {"name": "varchar", "float": "float", "boolean": "boolean"},
    "postgres": {"name": "character varying", "float": "double precision", "boolean": "boolean"},
}


def test_the_tables_that_are_made_are_those_that_are_asked(place, make_trial):
    kind = "sqlite" if isinstance(place, Path) else "postgres"
    statement = SQLITE_COLUMNS if kind == "sqlite" else POSTGRES_COLUMNS
    with open_store(place) as store:
        store.add(make_trial())
        connection = store._open()
        assert connection.columns().keys() == {table.name for table in TABLES}
        for table in TABLES:
            columns = connection.rows(statement.format(table=table.name))
            assert [column["name"] for column in columns] == table.names
            assert all(column["filled"] for column in columns)
            keys = sorted((column for column in columns if column["pk"]), key=lambda c: c["pk"])
            wanted = table.names[: table.keys]
            assert [column["name"] for column in keys] == wanted
            types = [TYPES[kind].get(column.kind, column.kind) for column in table.columns]
            assert [column["type"] for column in columns] == types
        assert connection.rows(INDEXES[kind]) == [{"name": "trials_by_time"}]


def test_a_trial_comes_back_as_it_was_added(place, make_trial, two_processes):
    trial = make_trial(samples=two_processes, stderr="warning: no", message="line\nline")
    with open_store(place) as store:
        store.add(trial)
    with open_store(place) as store:
        assert store.latest([trial.id]) == {trial.id: replace(trial, samples=())}
        assert store.samples(trial.id) == two_processes


def test_the_newest_attempt_wins_and_older_ones_are_kept(place, make_trial, two_processes):
    with open_store(place) as store:
        store.add(make_trial(status="crashed", verified=False))
        store.add(make_trial(samples=two_processes))
        assert store.latest(["a1"])["a1"].status == "ok"
        assert store.samples("a1") == two_processes
        assert [trial.status for trial in store.query()] == ["ok"]
        assert [trial.status for trial in store.query(history=True)] == ["ok", "crashed"]


def test_every_attempt_has_the_samples_that_it_took(place, make_trial, two_processes):
    with open_store(place) as store:
        store.add(make_trial(samples=two_processes))
        store.add(make_trial(samples=two_processes[:1]))
        store.add(make_trial("b2", status="crashed", verified=False))
        trials = store.query(history=True)
        assert {(trial.id, trial.attempt) for trial in trials} == {("a1", 1), ("a1", 2), ("b2", 1)}
        assert store.samples_of([*trials, *trials]) == {
            ("a1", 1): two_processes,
            ("a1", 2): two_processes[:1],
        }


def test_many_ids_are_looked_up_at_once_and_unknown_ones_are_left_out(place, make_trial):
    with open_store(place) as store:
        for number in range(1200):
            store.add(make_trial(f"t{number}"))
        found = store.latest([f"t{number}" for number in range(0, 2400, 2)])
    assert sorted(found) == sorted(f"t{number}" for number in range(0, 1200, 2))


def test_a_trial_without_a_date_gets_one(place, make_trial):
    with open_store(place) as store:
        store.add(make_trial(created=""))
        assert store.latest(["a1"])["a1"].created.endswith("+00:00")


def test_output_that_is_no_unicode_is_stored_all_the_same(place, make_trial):
    printed = b"\xff\xfe says the kernel".decode(errors="surrogateescape")
    with open_store(place) as store:
        store.add(make_trial(stderr=printed, message=printed, metrics={"x": float("nan")}))
        assert store.latest(["a1"])["a1"].stderr == "?? says the kernel"


def test_a_store_is_safe_against_power_loss_and_open_to_readers_while_written(path, make_trial):
    with open_store(path) as store:
        store.add(make_trial())
        with sqlite3.connect(path) as reader:
            assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert reader.execute("SELECT count(*) FROM trials").fetchone() == (1,)
        assert store._open().rows("PRAGMA synchronous") == [{"synchronous": 2}]


def test_an_empty_file_becomes_a_store_with_the_first_trial(path, make_trial):
    path.parent.mkdir(parents=True)
    path.touch()
    with open_store(path) as store:
        assert store.query() == []
        store.add(make_trial())
        assert len(store.query()) == 1


def test_a_store_that_appears_later_is_found(place, make_trial):
    with open_store(place) as reader, open_store(place) as writer:
        assert reader.latest(["a1"]) == {}
        writer.add(make_trial())
        assert "a1" in reader.latest(["a1"])


def test_any_path_will_do(tmp_path, make_trial):
    path = tmp_path / "a b; c?mode=ro#d%20" / "störe.db"
    with open_store(path) as store:
        store.add(make_trial())
    names = [path.name, backups_of(path)[0].name]
    assert sorted(file.name for file in path.parent.iterdir()) == names


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_newer_store_is_refused_with_its_version(path, make_trial, operation):
    with open_store(path) as store:
        store.add(make_trial())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with (
        open_store(path) as store,
        pytest.raises(StoreError, match=r"schema version 99, newer than \d+"),
    ):
        store.query() if operation == "read" else store.add(make_trial())


def test_a_database_of_something_else_is_not_touched(path, make_trial):
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with open_store(path) as store, pytest.raises(StoreError, match="bookmarks"):
        store.add(make_trial())
    assert path.read_bytes() == before


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_file_that_is_no_database_is_named_with_what_to_do(path, make_trial, operation):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database at all" * 500)
    with open_store(path) as store, pytest.raises(StoreError) as caught:
        store.query() if operation == "read" else store.add(make_trial())
    assert str(path) in str(caught.value)
    assert "move it away" in str(caught.value)


def test_a_torn_store_is_named_with_what_to_do(path, make_trial):
    with open_store(path) as store:
        for number in range(200):
            store.add(make_trial(f"t{number}", stderr="x" * 500))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with open_store(path) as store, pytest.raises(StoreError) as caught:
        store.query()
    assert str(path) in str(caught.value)
    assert "results repair" in str(caught.value)


def test_a_trial_that_is_no_json_is_damage(path, make_trial):
    said = []
    with open_store(path, said.append) as store:
        store.add(make_trial())
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE trials SET metrics = '{\"median'")
        assert store.query() == []
    assert "damaged" in said[0]


def test_a_place_that_cannot_be_written_is_named(make_trial):
    with open_store(Path("/proc/kernloom/store.db")) as store, pytest.raises(StoreError) as caught:
        store.add(make_trial())
    assert "/proc/kernloom/store.db" in str(caught.value)
    assert "store.path=" in str(caught.value)


def test_a_folder_in_the_place_of_the_store_is_named(path, make_trial):
    path.mkdir(parents=True)
    with open_store(path) as store, pytest.raises(StoreError, match=r"store\.db cannot be used"):
        store.add(make_trial())


def test_the_time_of_transfers_comes_back_with_the_samples(place, make_trial):
    measured = (Samples(3, (5.0, 6.0), (), (0, 0), (1.0, 2.0)),)
    with open_store(place) as store:
        store.add(make_trial(samples=measured))
        assert store.samples("a1") == measured


def test_warnings_conditions_and_overrides_come_back(place, make_trial):
    trial = make_trial(
        warnings=("too short",), conditions={"clock": "cpu"}, overrides=("workload=axpy",)
    )
    with open_store(place) as store:
        store.add(trial)
        assert store.latest(["a1"]) == {"a1": trial}
        assert store.query({"conditions.clock": "cpu"}) == [trial]


def test_trials_are_found_by_how_their_ids_begin(place, make_trial):
    with open_store(place) as store:
        for id in ("ab12", "ab34", "cd56"):
            store.add(make_trial(id))
        assert {trial.id for trial in store.starting_with("ab")} == {"ab12", "ab34"}
        assert store.starting_with("%") == []


def test_a_baseline_is_the_trials_that_were_last_saved_under_its_name(place, make_trial):
    with open_store(place) as store:
        for id in ("a1", "b2", "c3"):
            store.add(make_trial(id))
        store.save_baseline("main", ["a1", "b2"])
        store.save_baseline("main", ["b2", "c3"])
        store.save_baseline("old", ["a1"])
        assert {trial.id for trial in store.baseline("main")} == {"b2", "c3"}
        assert [(name, count) for name, _, count in store.baselines()] == [("main", 2), ("old", 1)]
        store.remove_baseline("old")
        with pytest.raises(UsageError, match="no baseline 'old'"):
            store.baseline("old")
        with pytest.raises(UsageError, match="no baseline 'mian'") as error:
            store.remove_baseline("mian")
        assert "main" in error.value.hint


def test_a_store_that_was_never_written_has_no_baselines(place):
    with open_store(place) as store:
        assert store.baselines() == []
        with pytest.raises(UsageError, match="no baseline 'main'"):
            store.baseline("main")


def test_how_often_trials_were_reused_is_counted(path, make_trial):
    with open_store(path) as store:
        assert store.reuses(["a1"]) == {}
        for id in ("a1", "b2"):
            store.add(make_trial(id))
        store.count_reuses(["a1", "b2"])
        store.count_reuses(["a1"])
        store.count_reuses([])
        assert store.reuses(["a1", "b2", "c3"]) == {"a1": 2, "b2": 1}


def test_the_facts_of_trials_are_found_by_workload_and_target_newest_first(place, make_trial):
    shared = {"measure": {"samples": 7}, "names": {"toolchain": "x" * 500}}
    with open_store(place) as store:
        for number in range(3):
            facts = {"shared": shared, "run": {"seed": number}}
            store.add(make_trial(f"a{number}", facts=facts, created=f"2025-01-0{number + 1}"))
        store.add(make_trial("other", workload="axpy", facts={"run": {"seed": 9}}))
        store.add(make_trial("without"))
    with open_store(place) as store:
        found = store.facts("matmul", "host", 2)
        assert [id for id, _ in found] == ["a2", "a1"]
        assert found[0][1] == {"shared": shared, "run": {"seed": 2}}


def test_a_reuse_notes_from_which_sources_a_trial_was_planned_last(place, make_trial):
    first, second = {"matmul:host": {"m.j2": "1"}}, {"matmul:host": {"m.j2": "2"}}
    with open_store(place) as store:
        store.add(make_trial("a1", sources=first))
        store.add(make_trial("b2", sources=first))
        (used,), of_trials = store.sources()
        assert (used.files, set(of_trials)) == (first, {"a1", "b2"})
        assert used.first == make_trial().created < used.last
        store.count_reuses(["a1"], {"a1": second})
        uses, of_trials = store.sources()
        files = {used.document: used.files for used in uses}
        assert {id: files[document] for id, document in of_trials.items()} == {
            "a1": second,
            "b2": first,
        }
