"""A log that is lost or cut short takes few trials with it, and the next command says how many."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernloom.measure.trial import Trial
from kernloom.store import open_store
from kernloom.store.backups import Backups, backups_of
from kernloom.store.repair import repair
from kernloom.store.sqlite import CountFile, count_file_of, wal_of

COUNT = 30


@pytest.fixture
def killed(path: Path, tmp_path: Path, make_trial: Callable[..., Trial]) -> Path:
    """A store as a killed process leaves it: the newest trials are in the log alone."""
    left = tmp_path / "killed" / path.name
    left.parent.mkdir()
    with open_store(path) as store:
        for number in range(COUNT):
            store.add(make_trial(f"t{number}"))
        for file in (path, wal_of(path), count_file_of(path)):
            shutil.copyfile(file, left.with_name(file.name))
    return left


def opened(path: Path) -> tuple[int, list[str]]:
    """How many trials there are, and what is said."""
    said: list[str] = []
    with open_store(path, said.append) as store:
        return len(store.query()), said


def test_a_whole_log_is_read_and_nothing_is_said(killed: Path) -> None:
    assert opened(killed) == (COUNT, [])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, None])
def test_trials_lost_with_the_log_are_counted_and_said_once(
    killed: Path, share: float | None
) -> None:
    log = wal_of(killed)
    if share is None:
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[: int(log.stat().st_size * share)])
    there, said = opened(killed)
    assert there < COUNT
    (line,) = said
    lost = COUNT - there
    assert line.startswith(f"{lost} trial")
    assert "lost" in line and "log" in line and str(killed) in line
    assert opened(killed) == (there, [])


@pytest.mark.parametrize("at", [2, 20, 33, 41, 49, 132, 0.5, 0.9])
def test_one_wrong_bit_in_the_log_costs_what_follows_and_is_said(killed: Path, at: float) -> None:
    log = wal_of(killed)
    data = bytearray(log.read_bytes())
    data[int(at if at >= 1 else at * len(data))] ^= 1
    log.write_bytes(data)
    there, said = opened(killed)
    assert there < COUNT
    assert said[0].startswith(f"{COUNT - there} trial")
    assert "kernloom results repair" in said[0]
    assert opened(killed) == (there, [])


def test_what_a_log_lost_comes_from_the_backup(killed: Path) -> None:
    files = {file: file.read_bytes() for file in killed.parent.iterdir()}
    Backups(killed).make()
    for file, data in files.items():
        file.write_bytes(data[:20_000] if file == wal_of(killed) else data)
    there, said = opened(killed)
    assert there < COUNT and len(said) == 1
    done = repair(killed)
    assert (done.saved, done.restored, done.lost) == (COUNT, COUNT - there, 0)
    assert opened(killed) == (COUNT, [])


def test_a_store_that_was_closed_has_nothing_in_a_log(
    path: Path, make_trial: Callable[..., Trial]
) -> None:
    with open_store(path) as store:
        store.add(make_trial())
    names = [path.name, backups_of(path)[0].name]
    assert sorted(file.name for file in path.parent.iterdir()) == names


def test_the_log_stays_short(path: Path, make_trial: Callable[..., Trial]) -> None:
    with open_store(path) as store:
        for number in range(300):
            store.add(make_trial(f"t{number}", stderr="x" * 5000))
        assert wal_of(path).stat().st_size < 2 * 2**20


def test_a_run_empties_the_log_though_others_have_the_store_open(
    path: Path, make_trial: Callable[..., Trial]
) -> None:
    with open_store(path) as store:
        store.add(make_trial("t0"))
    with open_store(path) as other:
        other.query()
        with open_store(path) as store:
            store.add(make_trial("t1"))
        copy = path.with_name("copy.db")
        shutil.copyfile(path, copy)
    assert opened(copy) == (2, [])


def test_a_store_that_was_removed_is_not_missed(
    killed: Path, make_trial: Callable[..., Trial]
) -> None:
    killed.unlink()
    wal_of(killed).unlink()
    said: list[str] = []
    with open_store(killed, said.append) as store:
        store.add(make_trial())
    assert opened(killed) == (1, [])
    assert said == []


def test_a_damaged_count_says_nothing(killed: Path) -> None:
    file = count_file_of(killed)
    file.write_text(file.read_text().replace(str(COUNT), "99"))
    assert opened(killed) == (COUNT, [])


def test_the_count_of_an_earlier_version_counts_for_nothing(killed: Path) -> None:
    Backups(killed).make()
    count_file_of(killed).write_text("31 0badc0de\n")
    assert opened(killed) == (COUNT, [])
    count_file_of(killed).write_text("31 0badc0de\n")
    killed.write_bytes(bytes(100) + killed.read_bytes()[100:])
    assert repair(killed).restored == COUNT


def test_a_count_never_gets_lower(path: Path) -> None:
    path.parent.mkdir(parents=True)
    count = CountFile(path)
    for number in (3, 5, 4):
        count.write("now", number)
    assert (count.read("now"), count.read("then"), count.read("")) == (5, 0, 0)
