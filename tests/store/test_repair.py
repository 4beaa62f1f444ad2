"""A damaged store is noticed and said, and whatever can be read of it is saved."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kernloom.base.errors import StoreError
from kernloom.store import open_store, sqlite
from kernloom.store import repair as module
from kernloom.store.backups import Backups, backups_of
from kernloom.store.repair import repair
from kernloom.store.sqlite import count_file_of, wal_of

COUNT = 300
PAGE = 4096


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


@pytest.fixture(autouse=True)
def no_backups(monkeypatch):
    """But for those that a test makes."""
    monkeypatch.setattr(Backups, "added", lambda *_: None)


@pytest.fixture
def written(path, trials):
    with open_store(path) as store:
        for trial in trials.values():
            store.add(trial)
        store.save_baseline("main", ["t001", "t299"])
    count_file_of(path).unlink()
    return path


def backed_up(path):
    Backups(path).make()
    assert backups_of(path)[0].exists()
    return path


def changed(path, start, bytes_):
    data = bytearray(path.read_bytes())
    data[start : start + len(bytes_)] = bytes_
    path.write_bytes(data)


def flipped(path, at):
    """One bit of a file is another."""
    changed(path, at, bytes([path.read_bytes()[at] ^ 1]))


LEAVES = {
    "trials": (0x0D, b'"stages": {"$"'),
    "samples": (0x0A, b"[0,1]"),
}
"""Tells the leaves of a table by their first byte and by what they hold."""


def pages_of(path, table):
    """Where the leaves of a table begin."""
    whole = path.read_bytes()
    kind, text = LEAVES[table]
    starts = range(0, len(whole), PAGE)
    return [at for at in starts if whole[at] == kind and text in whole[at : at + PAGE]]


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
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert repair(path).kept is None


def digests(path):
    with closing(sqlite3.connect(path)) as database:
        return set(database.execute("SELECT id, attempt, digest FROM trials"))


def test_a_sound_store_is_left_as_it_is(written):
    before = written.read_bytes()
    done = repair(written)
    assert (done.saved, done.lost, done.more, done.kept) == (COUNT, 0, False, None)
    assert written.read_bytes() == before
    assert [file.name for file in written.parent.iterdir()] == [written.name]


def test_of_a_truncated_store_the_trials_in_front_are_saved(written, trials):
    whole = written.read_bytes()
    before = digests(written)
    written.write_bytes(whole[: len(whole) // 2 + 1000])
    refused(written)
    done = repair(written)
    assert COUNT // 4 < done.saved < COUNT
    assert done.more
    assert done.kept.read_bytes() == whole[: len(whole) // 2 + 1000]
    assert digests(written) <= before
    check(written, trials, done)


def test_of_a_damaged_page_only_its_own_trials_are_lost(written, trials):
    leaves = pages_of(written, "trials")
    middle = leaves[len(leaves) // 2]
    whole = written.read_bytes()
    changed(written, middle, bytes(byte ^ 0x5A for byte in whole[middle : middle + 512]))
    refused(written)
    done = repair(written)
    assert 0 < done.lost < 10
    assert done.saved + done.lost == COUNT
    assert done.more
    assert done.incomplete == 0
    check(written, trials, done)
    with open_store(written) as store:
        assert store.baselines()[0][0] == "main"


def test_a_gap_is_filled_from_the_backup(written, trials):
    before = digests(written)
    leaves = pages_of(backed_up(written), "trials")
    with open_store(written) as store:
        store.add(replace(trials["t000"], id="newer"))
    for leaf in leaves[3:9]:
        changed(written, leaf, bytes(PAGE))
    refused(written)
    done = repair(written)
    assert (done.saved, done.lost, done.more, done.incomplete) == (COUNT + 1, 0, False, 0)
    assert 5 < done.restored < 100
    assert digests(written) > before
    check(written, trials | {"newer": replace(trials["t000"], id="newer")}, done)


DAMAGES = {
    "zeroed": lambda page, choose: bytes(PAGE),
    "flipped": lambda page, choose: bytes(
        byte ^ (1 << choose.randrange(8) if choose.random() < 0.01 else 0) for byte in page
    ),
    "another": lambda page, choose: choose.randbytes(PAGE),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("with_backup", [False, True])
def test_wherever_the_damage_is_nothing_else_is_lost(
    path, make_trial, two_processes, damage, with_backup, tmp_path
):
    """Any page of a small store, of the trials, their indexes, or what they share."""
    few = {
        f"t{n:03}": make_trial(
            f"t{n:03}",
            config={"large": {"of": "x" * 400, "n": n // 10}, "seed": n},
            samples=two_processes,
        )
        for n in range(40)
    }
    with open_store(path) as store:
        for trial in few.values():
            store.add(trial)
    if with_backup:
        backed_up(path)
    before = digests(path)
    with closing(sqlite3.connect(path)) as database:
        roots = {root - 1 for (root,) in database.execute("SELECT rootpage FROM sqlite_master")}
    choose = random.Random(7)
    whole = path.read_bytes()
    for number in range(len(whole) // PAGE):
        copy = tmp_path / f"{number}" / path.name
        shutil.copytree(path.parent, copy.parent)
        at = number * PAGE
        changed(copy, at, DAMAGES[damage](whole[at : at + PAGE], choose))
        try:
            done = repair(copy)
        except StoreError as error:
            assert "is no store" in str(error) and number == 0 and not with_backup
            assert copy.read_bytes()[PAGE:] == whole[PAGE:]
            continue
        if with_backup:
            assert (done.saved, done.lost, done.incomplete) == (len(few), 0, 0)
        if done.kept is None:
            assert done.saved == len(few)
            continue
        if not done.incomplete:
            assert digests(copy) <= before
            check(copy, few, done)
        if number:
            assert done.more or done.saved + done.lost == len(few)
            # From its root SQLite finds the other pages of a table.
            assert done.saved > len(few) // 2 or number in roots


def test_without_its_header_a_store_comes_from_its_backup(written, trials):
    backed_up(written)
    with open_store(written) as store:
        store.add(replace(trials["t000"], id="newer"))
        store.count_reuses(["t004"])
    before = digests(written)
    changed(written, 0, bytes(100))
    refused(written)
    done = repair(written)
    assert (done.saved, done.restored, done.lost, done.more) == (COUNT, COUNT, 1, False)
    assert digests(written) < before
    check(written, trials, done)
    with open_store(written) as store:
        assert [(name, count) for name, _, count in store.baselines()] == [("main", 2)]


def test_without_its_header_and_without_a_backup_a_store_is_not_touched(written):
    changed(written, 0, bytes(100))
    before = written.read_bytes()
    refused(written)
    with pytest.raises(StoreError, match="is no store"):
        repair(written)
    assert written.read_bytes() == before
    assert [file.name for file in written.parent.iterdir()] == [written.name]


def test_a_store_that_is_gone_has_its_backup_named(written):
    backed_up(written)
    written.unlink()
    with pytest.raises(StoreError, match="there is no store") as caught:
        repair(written)
    assert str(backups_of(written)[0]) in caught.value.hint


def test_the_backup_of_another_store_is_not_taken(written, trials):
    backed_up(written)
    written.unlink()
    with open_store(written) as store:
        store.add(trials["t001"])
        store.add(trials["t002"])
    assert repair(written).kept is None
    change = "UPDATE trials SET seconds = seconds + 1 WHERE id = 't002'"
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute(change)
    done = repair(written)
    assert (done.saved, done.lost, done.restored) == (1, 1, 0)


def test_a_lost_section_is_noted_in_the_trials_that_had_it(written):
    database = sqlite3.connect(written, isolation_level=None)
    database.execute("DELETE FROM documents")
    database.execute("VACUUM")
    database.close()
    refused(written)
    done = repair(written)
    assert (done.saved, done.incomplete) == (COUNT, COUNT)
    with open_store(written) as store:
        (trial,) = store.query({"id": "t007"})
        assert set(trial.config["pipeline"]["stages"]) == {"lost"}
        assert trial.config["seed"] == 7
    assert repair(written).kept is None


def test_a_lost_section_is_taken_from_the_backup(written, trials):
    backed_up(written)
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute("DELETE FROM documents")
    done = repair(written)
    assert (done.saved, done.incomplete) == (COUNT, 0)
    check(written, trials, done)


@pytest.fixture
def logged(path, trials, tmp_path, monkeypatch):
    """A store as a killed process leaves it: most of it still in the write-ahead log."""
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 8000)
    other = tmp_path / "killed" / path.name
    other.parent.mkdir()
    with open_store(path) as store:
        for trial in trials.values():
            store.add(trial)
        for file in (path, wal_of(path)):
            shutil.copyfile(file, other.with_name(file.name))
    assert wal_of(other).stat().st_size > COUNT * PAGE
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


def test_what_is_in_the_log_is_saved_too(logged, trials):
    changed(logged, 0, bytes(PAGE))
    done = repair(logged)
    assert done.kept is None or done.saved == COUNT


def test_an_emptied_store_is_saved_from_its_log(logged, trials):
    logged.write_bytes(b"")
    refused(logged)
    assert wal_of(logged).exists()
    log = wal_of(logged).read_bytes()
    done = repair(logged)
    assert (done.saved, done.lost) == (COUNT, 0)
    assert wal_of(done.kept).read_bytes() == log
    check(logged, trials, done)


def test_an_empty_file_needs_no_repair(path):
    path.parent.mkdir(parents=True)
    path.touch()
    assert repair(path).kept is None


@pytest.mark.parametrize("damaged", [False, True])
def test_a_database_of_something_else_is_not_repaired(path, damaged):
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        theirs.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        theirs.execute("INSERT INTO meta VALUES ('schema_version', '1')")
        theirs.execute("CREATE TABLE bookmarks (url TEXT)")
        theirs.executemany("INSERT INTO bookmarks VALUES (?)", [("x" * 500,)] * 100)
        if not damaged:
            theirs.execute("DROP TABLE meta")
    if damaged:
        changed(path, 3 * PAGE, bytes(PAGE))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no store" if damaged else "bookmarks") as caught:
        repair(path)
    assert str(path) in caught.value.message
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_store_of_a_newer_kernloom_is_not_repaired(written, damaged):
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    if damaged:
        changed(written, pages_of(written, "trials")[5], bytes(PAGE))
    before = written.read_bytes()
    with pytest.raises(StoreError, match=r"schema version 99, newer"):
        repair(written)
    assert written.read_bytes() == before
    assert [file.name for file in written.parent.iterdir()] == [written.name]


def test_a_text_is_no_store_and_is_not_touched(path):
    path.parent.mkdir(parents=True)
    path.write_text("My notes.\n" * 1000)
    refused(path)
    with pytest.raises(StoreError, match="is no store"):
        repair(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_removed_baseline_stays_removed(written, trials):
    with open_store(written) as store:
        store.save_baseline("few", ["t001"])
        store.save_baseline("many", list(trials))
        store.save_baseline("kept", ["t002", "t003"])
    backed_up(written)
    with open_store(written) as store:
        for name in ("few", "many", "main"):
            store.remove_baseline(name)
    changed(written, pages_of(written, "trials")[5], bytes(PAGE))
    check(written, trials, repair(written))
    with open_store(written) as store:
        assert [(name, count) for name, _, count in store.baselines()] == [("kept", 2)]


def test_how_often_trials_were_reused_is_saved(written, trials):
    with open_store(written) as store:
        for _ in range(3):
            store.count_reuses(["t004", "t005"])
        store.count_reuses(["t005"])
    changed(written, pages_of(written, "trials")[5], bytes(PAGE))
    check(written, trials, repair(written))
    with open_store(written) as store:
        assert store.reuses(trials) == {"t004": 3, "t005": 4}


def test_looks_are_no_baselines_and_do_not_hinder_a_repair(written, trials):
    with open_store(written) as store:
        store.save_screenings(dict(list(trials.items())[:100]))
    assert repair(written).kept is None
    changed(written, pages_of(written, "trials")[5], bytes(PAGE))
    check(written, trials, repair(written))
    with open_store(written) as store:
        assert [(name, count) for name, _, count in store.baselines()] == [("main", 2)]
        assert store.screenings(trials) == {}
        store.save_screenings({"t001": trials["t001"]})
        assert set(store.screenings(trials)) == {"t001"}


def test_a_trial_without_the_samples_it_had_is_incomplete(path, make_trial, two_processes):
    with open_store(path) as store:
        for id in ("a1", "b2", "c3"):
            store.add(make_trial(id, metrics={"processes": 2}, samples=two_processes))
        store.add(make_trial("unmeasured", metrics={}))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM samples WHERE trial = 'a1' OR (trial = 'b2' AND process = 1)")
    done = repair(path)
    assert (done.saved, done.lost, done.incomplete) == (4, 0, 2)


@pytest.mark.parametrize("with_backup", [False, True])
def test_a_trial_that_does_not_match_its_digest_is_repaired(written, trials, with_backup):
    if with_backup:
        backed_up(written)
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute("UPDATE trials SET seconds = seconds + 1 WHERE id = 't007'")
    done = repair(written)
    lost = int(not with_backup)
    assert (done.saved, done.lost, done.incomplete) == (COUNT - lost, lost, 0)
    assert done.restored == 1 - lost
    check(written, trials, done)


@pytest.mark.parametrize("with_backup", [False, True])
@pytest.mark.parametrize("all_of_them", [True, False])
def test_samples_that_do_not_match_their_digest_are_not_taken_for_right(
    written, trials, all_of_them, with_backup
):
    if with_backup:
        backed_up(written)
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        if all_of_them:
            database.execute("DELETE FROM samples WHERE trial = 't007'")
        else:
            change = "UPDATE samples SET wall_ns = '[1.0]' WHERE trial = 't007' AND process = 1"
            database.execute(change)
    done = repair(written)
    assert (done.saved, done.lost, done.incomplete) == (COUNT, 0, int(not with_backup))
    check(written, trials, done)
    with open_store(written) as store:
        assert store.samples("t007") == (trials["t007"].samples if with_backup else ())
        assert store.samples("t008")


def test_zeroed_pages_of_samples_are_repaired(written, trials):
    leaves = pages_of(written, "samples")
    changed(written, leaves[len(leaves) // 2], bytes(PAGE))
    done = repair(written)
    assert done.saved == COUNT and not done.lost
    assert 0 < done.incomplete < COUNT // 4
    check(written, trials, done)


ADD = """
import sys
from pathlib import Path
from kernloom.measure.trial import Trial
from kernloom.store import open_store

with open_store(Path(sys.argv[1])) as store:
    store.add(Trial(id="late", workload="w", case="c", target="t", status="ok", verified=True))
"""


def test_what_others_store_during_a_repair_is_not_lost(written, environment, monkeypatch):
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute("DELETE FROM documents")
    others = []
    repair_it = module._repair

    def watched(path, folder):
        argv = [sys.executable, "-c", ADD, str(path)]
        other = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE)
        others.append(other)
        descriptors = Path(f"/proc/{other.pid}/fd")
        # It has the damaged file open, and waits.
        while not any(is_link_to(file, path) for file in descriptors.iterdir()):
            assert other.poll() is None, other.stderr.read()
        done = repair_it(path, folder)
        assert other.poll() is None
        return done

    monkeypatch.setattr(module, "_repair", watched)
    done = repair(written)
    assert others[0].wait() == 0, others[0].stderr.read()
    with open_store(written) as store:
        assert len(store.query()) == done.saved + 1 == COUNT + 1
        assert "late" in store.latest(["late"])


def is_link_to(file, path):
    try:
        return file.resolve() == path.resolve()
    except OSError:
        return False


class Killed(BaseException):
    pass


def test_a_repair_that_is_killed_at_any_moment_is_finished_by_the_next(
    path, trials, monkeypatch, tmp_path
):
    few = list(trials.values())[:12]
    logged = tmp_path / "killed" / path.name
    logged.parent.mkdir()
    with open_store(path) as store:
        for trial in few:
            store.add(trial)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("UPDATE trials SET seconds = 9 WHERE id = 't003'")
        for file in (path, wal_of(path)):
            shutil.copyfile(file, logged.with_name(file.name))
    assert wal_of(logged).stat().st_size
    for moment in itertools.count():
        folder = tmp_path / f"at-{moment}"
        shutil.copytree(logged.parent, folder)
        store_file = folder / logged.name
        with monkeypatch.context() as patched:
            steps = itertools.count()
            for place, name in [(os, "fsync"), (Path, "unlink"), (Path, "replace")]:
                patched.setattr(place, name, killing(getattr(place, name), steps, moment))
            try:
                repair(store_file)
            except Killed:
                pass
            else:
                break
        try:
            with open_store(store_file) as store:
                assert len(store.query()) == len(few) - 1
        except StoreError as error:
            assert "results repair" in error.hint
        done = repair(store_file)
        if done.kept is not None:
            assert (done.saved, done.lost) == (len(few) - 1, 1)
            check(store_file, trials, done)
    assert moment > 8


def killing(function, steps, moment):
    """The function, but the process ends at one of its calls."""

    def call(*arguments, **named):
        if next(steps) == moment:
            raise Killed
        return function(*arguments, **named)

    return call


def test_a_store_that_is_in_use_is_not_repaired(written, environment):
    code = (
        "import sys; from pathlib import Path; from kernloom.store.repair import repair;"
        "repair(Path(sys.argv[1]))"
    )
    with closing(sqlite3.connect(written)) as other:
        other.execute("SELECT count(*) FROM trials").fetchone()
        argv = [sys.executable, "-c", code, str(written)]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment)
    assert done.returncode != 0
    assert "in use by another process" in done.stderr
