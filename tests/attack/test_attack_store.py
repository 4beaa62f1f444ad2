"""A damaged store gives trials as they were stored, and says which ones are missing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from attacks import Attack
from kernloom.base.errors import StoreError
from kernloom.measure.trial import Samples, Trial
from kernloom.store import open_store
from kernloom.store.sqlite import count_file_of, wal_of

COUNT = 40
PAGE = 4096
TABLE_LEAF = 0x0D


def made(number: int) -> Trial:
    return Trial(
        f"{number * 7919:016x}",
        "axpy",
        "default",
        "host",
        "ok",
        True,
        point={"N": number},
        params={"unroll": {"add": {"vectors": number % 4}}},
        metrics={"median_ns": 1000.25 + number, "gflops": 12.5, "samples": 7},
        config={"workload": {"sizes": {"N": number}}, "large": {"about": "0123456789" * 60}},
        machine={"cpu": "test", "cores": 2},
        created=f"2025-01-02T03:04:{number:02}.000+00:00",
        seconds=0.125 + number,
        samples=(Samples(3, (1.5, 2.5 + number), (1.25, 2.25), (0, 1)),),
    )


TRIALS = {trial.id: trial for trial in map(made, range(COUNT))}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.db"
    with open_store(path) as store:
        for trial in TRIALS.values():
            store.add(trial)
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as a killed process leaves it."""
    folder = tmp_path_factory.mktemp("killed")
    path, left = folder / "store.db", folder / "left" / "store.db"
    left.parent.mkdir()
    with open_store(path) as store:
        for trial in TRIALS.values():
            store.add(trial)
        for file in (path, wal_of(path), count_file_of(path)):
            shutil.copyfile(file, left.with_name(file.name))
    return left


def outcome(path: Path) -> str:
    """What is wrong with how a store is read, if anything is."""
    said: list[str] = []
    try:
        with open_store(path, said.append) as store:
            found = {trial.id: trial for trial in store.query()}
            latest = store.latest(TRIALS)
            samples = {id: store.samples(id) for id in found}
    except StoreError as error:
        return "" if "damaged" in str(error) and error.hint else f"unclear: {error}"
    for id, trial in [*found.items(), *latest.items()]:
        if id not in TRIALS or trial != replace(TRIALS[id], samples=()):
            return f"another trial: {trial}"
    for id, taken in samples.items():
        if taken != TRIALS[id].samples and not (taken == () and said):
            return f"other samples: {taken}"
    if not said and not (found.keys() == latest.keys() == TRIALS.keys()):
        return f"{COUNT - len(found)} trials are missing without a word"
    return ""


def digits(data: bytes) -> Iterator[int]:
    """Where the digits of values stand; not those of indexes, which SQLite keeps twice."""
    for start in range(0, len(data), PAGE):
        if data[start] == TABLE_LEAF:
            yield from (at for at in range(start, start + PAGE) if 48 <= data[at] < 58)


def test_attack_digit_in_store(attack: Attack, written: Path, tmp_path: Path) -> None:
    whole = written.read_bytes()
    places = attack.random.sample(list(digits(whole)), 400)
    path = tmp_path / written.name
    for at in attack.cases(places, small=25):
        new = attack.random.choice([d for d in b"0123456789" if d != whole[at]])
        path.write_bytes(whole[:at] + bytes([new]) + whole[at + 1 :])
        if why := outcome(path):
            attack.failed(f"{whole[max(0, at - 20) : at + 20]!r}: {why}")
    attack.check()


def test_attack_digit_in_samples(attack: Attack, written: Path, tmp_path: Path) -> None:
    path = tmp_path / written.name
    for id in attack.cases(TRIALS, small=5):
        shutil.copyfile(written, path)
        with closing(sqlite3.connect(path)) as database, database:
            change = "UPDATE samples SET wall_ns = replace(wall_ns, '2.5', '2.7') WHERE trial = ?"
            other = "UPDATE samples SET inner_count = 4 WHERE trial = ?"
            database.execute(attack.random.choice([change, other]), [id])
        if why := outcome(path):
            attack.failed(why)
        with open_store(path, lambda note: None) as store:
            if store.latest([id]) or store.samples(id) == TRIALS[id].samples:
                # The first sample of some trials has no such digits.
                unchanged = store.samples(id) == TRIALS[id].samples
                if not unchanged:
                    attack.failed(f"{id} is reused")
    attack.check()


def test_attack_truncated_log(attack: Attack, killed: Path, tmp_path: Path) -> None:
    log = wal_of(killed).read_bytes()
    lengths = [0, *(attack.random.randrange(len(log)) for _ in range(150))]
    for number, length in enumerate(attack.cases(lengths, small=15)):
        path = tmp_path / str(number) / killed.name
        shutil.copytree(killed.parent, path.parent)
        wal_of(path).write_bytes(log[:length])
        said: list[str] = []
        with open_store(path, said.append) as store:
            there = len(store.query())
        lost = COUNT - there
        if lost and not any(note.startswith(f"{lost} trial") for note in said):
            attack.failed(f"cut at {length}: {lost} lost, said: {said}")
        if why := outcome_after(path, there):
            attack.failed(f"cut at {length}: {why}")
        shutil.rmtree(path.parent)
    attack.check()


def outcome_after(path: Path, there: int) -> str:
    """A loss is said once, and nothing else is lost."""
    said: list[str] = []
    with open_store(path, said.append) as store:
        return "" if len(store.query()) == there and not said else f"said again: {said}"
