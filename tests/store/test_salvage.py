"""A damaged store is noticed and said, and whatever can be read of it is saved."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kernloom.base.errors import StoreError
from kernloom.store import log as log_module
from kernloom.store import open_store, sqlite
from kernloom.store import salvage as module
from kernloom.store.log import FRAME_HEADER, HEADER, PAGE_SIZE, gap_in
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
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert salvage(path).kept is None


def test_a_sound_store_is_left_as_it_is(written):
    before = written.read_bytes()
    done = salvage(written)
    assert (done.saved, done.lost, done.more, done.kept) == (COUNT, 0, False, None)
    assert written.read_bytes() == before
    assert [file.name for file in written.parent.iterdir()] == [written.name]


def test_of_a_truncated_store_the_trials_in_front_are_saved(written, trials):
    whole = written.read_bytes()
    written.write_bytes(whole[: len(whole) // 2 + 1000])
    refused(written)
    done = salvage(written)
    assert COUNT // 4 < done.saved < COUNT
    assert done.more
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
    assert done.more
    assert done.incomplete == 0
    check(written, trials, done)
    with open_store(written) as store:
        assert store.baselines()[0][0] == "main"


def test_without_its_first_pages_a_store_is_saved_whole(written, trials):
    changed(written, 0, bytes(100))
    refused(written)
    done = salvage(written)
    assert (done.saved, done.lost, done.more) == (COUNT, 0, False)
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


def flipped(path, at):
    """One bit of a file is another."""
    changed(path, at, bytes([path.read_bytes()[at] ^ 1]))


def frames(log):
    """Where the frames of a log begin, and whether each ends a commit."""
    data = log.read_bytes()
    starts = range(HEADER, len(data), FRAME_HEADER + PAGE_SIZE)
    return [(start, any(data[start + 4 : start + 8])) for start in starts]


@pytest.mark.parametrize("at", [2, 20, HEADER + 1, HEADER + 9, HEADER + 17, HEADER + 100, "middle"])
def test_one_wrong_bit_in_the_log_is_said_and_nothing_is_lost(logged, trials, at):
    log = wal_of(logged)
    flipped(log, log.stat().st_size // 2 if at == "middle" else at)
    before = log.read_bytes()
    refused(logged)
    assert log.read_bytes() == before
    done = salvage(logged)
    assert COUNT - 1 <= done.saved <= COUNT
    check(logged, trials, done)


@pytest.mark.parametrize("at", [None, 2, 20, HEADER + 1, HEADER + 9, HEADER + 100, "middle"])
def test_a_log_is_told_sound_or_damaged_whether_it_is_short_or_long(logged, monkeypatch, at):
    log = wal_of(logged)
    if at is not None:
        flipped(log, log.stat().st_size // 2 if at == "middle" else at)
    told = []
    for few in (0, 10**6):
        monkeypatch.setattr(log_module, "FEW", few)
        told.append(gap_in(log))
    assert told[0] == told[1]
    assert (told[0] is None) == (at is None)


def test_a_short_log_is_read_without_numpy(path, make_trial, tmp_path, environment):
    copy = tmp_path / path.name
    with open_store(path) as store:
        for number in range(20):
            store.add(make_trial(f"t{number}"))
        for file in (path, wal_of(path)):
            shutil.copyfile(file, copy.with_name(file.name))
    code = (
        "import sys; from pathlib import Path; from kernloom.store import open_store;"
        "assert 't19' in open_store(Path(sys.argv[1])).latest(['t19']);"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'sqlalchemy')))"
    )
    assert wal_of(copy).stat().st_size > 20 * PAGE_SIZE
    subprocess.run([sys.executable, "-c", code, str(copy)], check=True, env=environment)


def test_the_last_commit_may_be_torn_by_a_power_failure_but_by_nothing_else(logged, trials):
    log = wal_of(logged)
    commits = [start for start, commit in frames(log) if commit]
    flipped(log, commits[-2] + 2 * FRAME_HEADER + PAGE_SIZE)
    refused(logged)
    os.utime(log, (0, 0))
    with open_store(logged) as store:
        assert len(store.query()) == COUNT - 1


def test_a_log_that_is_used_again_from_its_beginning_is_sound(path, trials, tmp_path):
    with open_store(path) as store:
        for trial in trials.values():
            store.add(trial)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(RESTART)")
        store.add(replace(trials["t000"], id="again"))
        copy = tmp_path / path.name
        for file in (path, wal_of(path)):
            shutil.copyfile(file, copy.with_name(file.name))
    assert salvage(copy).kept is None
    with open_store(copy) as store:
        assert len(store.query()) == COUNT + 1


def test_a_log_that_others_write_meanwhile_is_never_taken_for_damaged(path, environment):
    code = (
        "import sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('PRAGMA journal_mode=WAL')\n"
        "database.execute('PRAGMA wal_autocheckpoint=20')\n"
        "database.execute('CREATE TABLE t (x)')\n"
        "print(flush=True)\n"
        "while True:\n"
        "    database.execute('INSERT INTO t VALUES (randomblob(9000))')\n"
        "    database.execute('DELETE FROM t')\n"
    )
    path.parent.mkdir(parents=True)
    argv = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as writer:
        writer.stdout.readline()
        for _ in range(500):
            assert gap_in(wal_of(path)) is None
        writer.kill()


def test_a_log_that_is_damaged_in_its_middle_gives_what_comes_after_too(logged, trials):
    log = wal_of(logged)
    middle = log.stat().st_size // 2
    changed(log, middle, bytes(64))
    refused(logged)
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
        changed(path, 3 * PAGE_SIZE, bytes(PAGE_SIZE))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no store" if damaged else "bookmarks") as caught:
        salvage(path)
    assert str(path) in caught.value.message
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_store_of_a_newer_kernloom_is_not_repaired(written, damaged):
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    if damaged:
        changed(written, 0, bytes(100))
    before = written.read_bytes()
    with pytest.raises(StoreError, match=r"schema version (is )?99, newer"):
        salvage(written)
    assert written.read_bytes() == before
    assert [file.name for file in written.parent.iterdir()] == [written.name]


def test_a_text_is_no_store_and_is_not_touched(path):
    path.parent.mkdir(parents=True)
    path.write_text("My notes.\n" * 1000)
    refused(path)
    with pytest.raises(StoreError, match="is no store"):
        salvage(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_removed_baseline_stays_removed(path, trials, tmp_path):
    with open_store(path) as store:
        for trial in trials.values():
            store.add(trial)
        store.save_baseline("few", ["t001"])
        store.save_baseline("many", list(trials))
        store.save_baseline("kept", ["t002", "t003"])
        store.remove_baseline("few")
        store.remove_baseline("many")
        copy = tmp_path / path.name
        for file in (path, wal_of(path)):
            shutil.copyfile(file, copy.with_name(file.name))
    flipped(wal_of(copy), HEADER + 100)
    salvage(copy)
    with open_store(copy) as store:
        assert [(name, count) for name, _, count in store.baselines()] == [("kept", 2)]


def test_how_often_trials_were_reused_is_saved(written, trials):
    with open_store(written) as store:
        for _ in range(3):
            store.count_reuses(["t004", "t005"])
        store.count_reuses(["t005"])
    changed(written, 0, bytes(100))
    check(written, trials, salvage(written))
    with open_store(written) as store:
        assert store.reuses(trials) == {"t004": 3, "t005": 4}


def test_looks_are_no_baselines_and_do_not_hinder_a_repair(written, trials):
    with open_store(written) as store:
        store.keep_looks(dict(list(trials.items())[:100]))
    assert salvage(written).kept is None
    changed(written, 0, bytes(100))
    check(written, trials, salvage(written))
    with open_store(written) as store:
        assert [(name, count) for name, _, count in store.baselines()] == [("main", 2)]
        assert store.looks(trials) == {}
        store.keep_looks({"t001": trials["t001"]})
        assert set(store.looks(trials)) == {"t001"}


def test_a_trial_without_the_samples_it_had_is_incomplete(path, make_trial, two_processes):
    with open_store(path) as store:
        for id in ("a1", "b2", "c3"):
            store.add(make_trial(id, metrics={"processes": 2}, samples=two_processes))
        store.add(make_trial("unmeasured", metrics={}))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM samples WHERE trial = 'a1' OR (trial = 'b2' AND process = 1)")
        database.execute("VACUUM")
    changed(path, 0, bytes(100))
    done = salvage(path)
    assert (done.saved, done.lost, done.incomplete) == (4, 0, 2)


def test_a_trial_that_does_not_match_its_digest_is_repaired(written, trials):
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute("UPDATE trials SET seconds = seconds + 1 WHERE id = 't007'")
    done = salvage(written)
    assert (done.saved, done.lost, done.incomplete) == (COUNT - 1, 1, 0)
    check(written, trials, done)


@pytest.mark.parametrize("all_of_them", [True, False])
def test_samples_that_do_not_match_their_digest_are_not_taken_for_right(
    written, trials, all_of_them
):
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        if all_of_them:
            database.execute("DELETE FROM samples WHERE trial = 't007'")
        else:
            change = "UPDATE samples SET wall_ns = '[1.0]' WHERE trial = 't007' AND process = 1"
            database.execute(change)
    done = salvage(written)
    assert (done.saved, done.lost, done.incomplete) == (COUNT, 0, 1)
    check(written, trials, done)
    with open_store(written) as store:
        assert store.samples("t007") == () and store.samples("t008")


def test_zeroed_pages_of_samples_are_repaired(written, trials):
    whole = written.read_bytes()
    pages = range(0, len(whole), PAGE_SIZE)
    # A leaf of an index with the times of samples, which no index of trials has.
    leaf = [at for at in pages if whole[at] == 0x0A and b"[0,1]" in whole[at : at + PAGE_SIZE]]
    changed(written, leaf[len(leaf) // 2], bytes(PAGE_SIZE))
    done = salvage(written)
    assert done.saved == COUNT and done.more
    assert 0 < done.incomplete < COUNT
    check(written, trials, done)


ADD = """
import sys
from pathlib import Path
from kernloom.measure.trial import Trial
from kernloom.store import open_store

with open_store(Path(sys.argv[1])) as store:
    store.add(Trial(id="late", workload="w", case="c", target="t", status="ok", verified=True))
"""


def test_what_others_store_during_a_repair_is_not_lost(written, trials, environment, monkeypatch):
    with closing(sqlite3.connect(written, isolation_level=None)) as database:
        database.execute("DELETE FROM documents")
    others = []
    replace_it = module._replace

    def watched(path, found):
        argv = [sys.executable, "-c", ADD, str(path)]
        other = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE)
        others.append(other)
        descriptors = Path(f"/proc/{other.pid}/fd")
        # It has the damaged file open, and waits.
        while not any(is_link_to(file, path) for file in descriptors.iterdir()):
            assert other.poll() is None, other.stderr.read()
        kept = replace_it(path, found)
        assert other.poll() is None
        return kept

    monkeypatch.setattr(module, "_replace", watched)
    done = salvage(written)
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


@pytest.mark.parametrize("linked", [True, False])
def test_a_repair_that_is_killed_at_any_moment_is_finished_by_the_next(
    path, trials, monkeypatch, linked, tmp_path
):
    few = list(trials.values())[:12]
    logged = tmp_path / "killed" / path.name
    logged.parent.mkdir()
    with open_store(path) as store:
        for trial in few:
            store.add(trial)
        for file in (path, wal_of(path)):
            shutil.copyfile(file, logged.with_name(file.name))
    flipped(wal_of(logged), wal_of(logged).stat().st_size // 2)
    for moment in itertools.count():
        folder = tmp_path / f"at-{moment}"
        shutil.copytree(logged.parent, folder)
        store_file = folder / logged.name
        with monkeypatch.context() as patched:
            steps = itertools.count()
            for place, name in [(os, "link"), (os, "fsync"), (Path, "unlink"), (Path, "replace")]:
                patched.setattr(place, name, killing(getattr(place, name), steps, moment, linked))
            try:
                salvage(store_file)
            except Killed:
                pass
            else:
                break
        try:
            with open_store(store_file) as store:
                assert len(store.query()) >= len(few) - 1
        except StoreError as error:
            assert "results repair" in error.hint
            done = salvage(store_file)
            assert done.saved >= len(few) - 1
            check(store_file, trials, done)
    assert moment > 8


def killing(function, steps, moment, linked):
    """The function, but the process ends at one of its calls; maybe links are not possible."""

    def call(*arguments, **named):
        if next(steps) == moment:
            raise Killed
        if function.__name__ == "link" and not linked:
            raise PermissionError(errno.EPERM, "no links here")
        return function(*arguments, **named)

    return call


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
