"""A trial that is not what was stored is neither reused nor shown, and that is said once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kernloom.base.errors import StoreError
from kernloom.measure.trial import Samples, Trial
from kernloom.store import open_store
from kernloom.store.backups import backups_of
from kernloom.store.repair import repair
from kernloom.store.schema import TRIALS

MakeTrial = Callable[..., Trial]
TAKEN = (Samples(3, (5.0, 6.0), (4.0, 5.0), (0, 1)), Samples(3, (5.5,), (4.5,), (2,)))
TEXTS = [c.name for c in TRIALS.columns if c.kind in ("text", "name") and c.name != "digest"]
OTHERS = {"verified": "0", "seconds": "seconds + 1", "attempt": "7"}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def written(path: Path, make_trial: MakeTrial) -> Path:
    with open_store(path) as store:
        for id in ("a1", "b2"):
            store.add(make_trial(id, samples=TAKEN, message="m", stage="s", stderr="e"))
    return path


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement).rowcount > 0


def shown(path: Path, said: list[str]) -> set[str]:
    with open_store(path, said.append) as store:
        found = {trial.id for trial in store.query()}
        assert {trial.id for trial in store.starting_with("")} == found
        assert store.latest(["a1", "b2"]).keys() == found
    return found


@pytest.mark.parametrize("column", TEXTS)
def test_a_changed_text_is_noticed(written: Path, said: list[str], column: str) -> None:
    change(written, f"UPDATE trials SET {column} = {column} || ' ' WHERE id = 'a1'")
    assert shown(written, said) <= {"b2", "a1 "} - {"a1 "}
    assert len(said) == 1
    assert "1 trial does not match its digest and is left out (a1" in said[0]
    assert str(written) in said[0]


@pytest.mark.parametrize("column", OTHERS)
def test_a_changed_number_is_noticed(written: Path, said: list[str], column: str) -> None:
    change(written, f"UPDATE trials SET {column} = {OTHERS[column]} WHERE id = 'a1'")
    assert shown(written, said) == {"b2"}
    assert len(said) == 1


def test_text_that_is_no_utf8_hides_no_other_trial(written: Path, said: list[str]) -> None:
    change(written, "UPDATE trials SET message = CAST(x'41ff' AS TEXT) WHERE id = 'a1'")
    assert shown(written, said) == {"b2"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE samples SET wall_ns = '[5.0,6.5]' WHERE trial = 'a1' AND process = 0",
        "UPDATE samples SET inner_count = 4 WHERE trial = 'a1' AND process = 1",
        "DELETE FROM samples WHERE trial = 'a1' AND process = 1",
    ],
)
def test_a_trial_with_other_samples_is_not_reused(
    written: Path, said: list[str], statement: str
) -> None:
    change(written, statement)
    with open_store(written, said.append) as store:
        assert store.latest(["a1", "b2"]).keys() == {"b2"}
        assert store.samples("a1") == ()
        assert store.samples("b2") == TAKEN
        assert store.samples_of(store.query()) == {("b2", 1): TAKEN}
    assert len(said) == 1


@pytest.mark.parametrize(
    "statement", ["UPDATE samples SET inner_count = 4 WHERE trial = 'a1'", "DELETE FROM samples"]
)
def test_a_trial_with_other_samples_is_in_no_answer(
    written: Path, said: list[str], statement: str
) -> None:
    change(written, statement)
    assert shown(written, said) <= {"b2"}
    with open_store(written, said.append) as store:
        assert {trial.id for trial in store.query(sort="median_ns")} <= {"b2"}
        assert {trial.id for trial in store.query(history=True)} <= {"b2"}
        assert not store.query({"id": "a1"})


def test_exchanged_samples_are_noticed(path: Path, make_trial: MakeTrial, said: list[str]) -> None:
    with open_store(path) as store:
        store.add(make_trial("a1", samples=TAKEN[:1]))
        store.add(make_trial("b2", samples=TAKEN[1:]))
    change(path, "UPDATE samples SET attempt = 2, trial = iif(trial = 'a1', 'b2', 'a1')")
    change(path, "UPDATE samples SET attempt = 1")
    assert len(shown_by_latest(path, said)) == 0
    assert "2 trials do not match their digests" in said[0]


def shown_by_latest(path: Path, said: list[str]) -> set[str]:
    with open_store(path, said.append) as store:
        return set(store.latest(["a1", "b2"]))


def test_a_changed_section_is_noticed(path: Path, make_trial: MakeTrial) -> None:
    with open_store(path) as store:
        store.add(make_trial(config={"large": {"text": "x" * 999}}))
    change(path, "UPDATE documents SET text = replace(text, 'xxx', 'xyx')")
    with open_store(path) as store, pytest.raises(Exception, match="does not match its hash"):
        store.query()


def test_a_changed_source_is_noticed(
    place: Path | str, make_trial: MakeTrial, request: pytest.FixtureRequest
) -> None:
    """Another digit in the hash of a file would make another version of the source."""
    with open_store(place) as store:
        store.add(make_trial(sources={"gemm:c": {"gemm.c": "ab12"}}))
        assert [dict(use.files) for use in store.sources()[0]] == [{"gemm:c": {"gemm.c": "ab12"}}]
    statement = "UPDATE {}documents SET text = replace(text, 'ab12', 'ab13')"
    if isinstance(place, Path):
        change(place, statement.format(""))
    else:
        schema = place.rpartition("%3D")[2]
        request.getfixturevalue("server").execute(statement.format(f"{schema}."))
    with open_store(place) as store, pytest.raises(StoreError, match="does not match its hash"):
        store.sources()


def test_a_store_with_a_changed_source_can_be_repaired(path: Path, make_trial: MakeTrial) -> None:
    with open_store(path) as store:
        store.add(make_trial(sources={"gemm:c": {"gemm.c": "ab12"}}))
    change(path, "UPDATE documents SET text = replace(text, 'ab12', 'ab13')")
    backups_of(path)[0].unlink()
    assert repair(path).kept
    with open_store(path) as store:
        assert store.sources()[0] == []
        assert len(store.query()) == 1


def test_a_damaged_trial_can_be_measured_again(
    written: Path, make_trial: MakeTrial, said: list[str]
) -> None:
    change(written, "UPDATE trials SET metrics = replace(metrics, '1500', '1501')")
    with open_store(written, said.append) as store:
        assert store.latest(["a1"]) == {}
        store.add(make_trial("a1"))
        assert store.latest(["a1"])["a1"].metrics["median_ns"] == 1500.25
    assert len(said) == 1


def test_a_server_notices_as_well(
    place: Path | str, make_trial: MakeTrial, said: list[str], request: pytest.FixtureRequest
) -> None:
    if isinstance(place, Path):
        pytest.skip("the tests above")
    with open_store(place) as store:
        store.add(make_trial("a1", samples=TAKEN))
        store.add(make_trial("b2", seconds=1e-7, verified=False, metrics={"é": 0.1}))
        store.add(make_trial("b2", seconds=3))
    schema = place.rpartition("%3D")[2]
    server = request.getfixturevalue("server")
    with open_store(place, said.append) as store:
        assert len(store.query(history=True)) == 3
    assert said == []
    server.execute(f"UPDATE {schema}.trials SET metrics = '{{}}' WHERE id = 'a1'")
    with open_store(place, said.append) as store:
        assert [trial.id for trial in store.query()] == ["b2"]
    assert len(said) == 1


@pytest.fixture
def older(written: Path) -> Iterator[Path]:
    """A store as version 3 left it."""
    with closing(sqlite3.connect(written)) as database, database:
        database.execute("ALTER TABLE trials DROP COLUMN digest")
        database.execute("UPDATE meta SET value = '3' WHERE key = 'schema_version'")
    yield written


def test_the_trials_of_an_older_store_get_their_digests(older: Path, said: list[str]) -> None:
    assert shown(older, said) == {"a1", "b2"}
    with closing(sqlite3.connect(older)) as database:
        digests = [row[0] for row in database.execute("SELECT digest FROM trials")]
    assert all(len(digest) == 65 for digest in digests)
    change(older, "UPDATE trials SET seconds = 9 WHERE id = 'b2'")
    assert shown(older, said) == {"a1"}


def test_a_wrong_version_gives_a_damaged_trial_no_new_digest(
    written: Path, said: list[str]
) -> None:
    change(written, "UPDATE trials SET seconds = 9 WHERE id = 'b2'")
    change(written, "UPDATE meta SET value = '1' WHERE key = 'schema_version'")
    assert shown(written, said) == {"a1"}


def test_a_damaged_look_is_taken_again(path: Path, make_trial: MakeTrial) -> None:
    with open_store(path) as store:
        store.save_screenings({"l1": make_trial(), "l2": make_trial()})
        assert store.screenings(["l1"])["l1"]["metrics"]["gflops"] == 88.0
    change(path, "UPDATE looks SET text = replace(text, '88.0', '99.0') WHERE id = 'l1'")
    with open_store(path) as store:
        assert store.screenings(["l1", "l2"]).keys() == {"l2"}
