"""Studies that several engines work on at once, with one store: nothing is measured twice or lost,
and all find the same winner."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from command_line import KERNEL, PATIENCE_S, Project
from postgres import Server

BODY = """\
#if BY == 3 && DEEP == 2
#error not these together
#endif
for (volatile long wait = 0; wait < (BY + 8 * DEEP) * 4000; wait++) {}
for (long i = 0; i < n; i++) y[i] = 2 * x[i];
"""
KERNEL_TEXT = KERNEL.format(name="shared").replace(
    "function: shared", "function: shared, macros: {BY: by, DEEP: deep}"
) + (
    "tunables: {unroll: {by: {values: [8, 7, 6, 5, 4, 3, 2, 1], 'off': 1},"
    " deep: {values: [2, 1, 0], 'off': 0}}}\n"
)
POINTS = 24
TUNE = (
    *("tune", "workload=shared", "batch=4", "leaders=3", "stages=1", "output=json"),
    *("measure=quick", "racing=quick"),
)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The words that select a store of one test."""
    if request.param == "sqlite":
        return f"store.path={tmp_path / 'shared.db'}"
    server: Server = request.getfixturevalue("server")
    name = f"study_{abs(hash(request.node.name))}"
    server.execute(f"CREATE DATABASE {name}", database="postgres")
    return f"store.url={server.url(database=name)}"


@pytest.fixture
def shared(project: Project) -> Project:
    project.add("shared", BODY, kernel=KERNEL_TEXT)
    return project


def measured(project: Project, store: str) -> Counter[str]:
    """How often each trial was carried out."""
    trials = project.json("results", "--history", store).trials
    return Counter(trial["id"] for trial in trials)


@pytest.mark.parametrize("strategies", [("auto", "auto"), ("random", "local")])
def test_engines_with_one_store_measure_each_point_once_and_agree(
    shared: Project, store: str, strategies: tuple[str, ...]
) -> None:
    engines = [
        shared.start(*TUNE, store, f"strategy={name}", f"search.seed={seed}")
        for seed, name in enumerate(strategies)
    ]
    done = [engine.communicate(PATIENCE_S) for engine in engines]
    assert [engine.wait() for engine in engines] == [0, 0], done
    found: list[Any] = [json.loads(out) for out, _ in done]
    assert [one["study"]["evaluated"] for one in found] == [POINTS, POINTS]
    assert found[0]["winner"]["id"] == found[1]["winner"]["id"]
    assert set(measured(shared, store).values()) == {1}


def test_a_study_goes_on_after_one_of_its_engines_is_killed(shared: Project, store: str) -> None:
    engines = [shared.start(*TUNE, store, f"search.seed={seed}") for seed in (1, 2)]
    while len(shared.json("results", store).document.get("trials", ())) < 3:
        pass
    engines[0].send_signal(signal.SIGKILL)
    engines[0].communicate(PATIENCE_S)
    out, err = engines[1].communicate(PATIENCE_S)
    assert engines[1].wait() == 0, err
    again = shared.json(*TUNE[:-1], store, "search.seed=1")
    assert again.code == 0, again
    other = json.loads(out)
    assert again.document["study"]["evaluated"] == other["study"]["evaluated"] == POINTS
    assert again.document["winner"]["id"] == other["winner"]["id"]
    assert set(measured(shared, store).values()) == {1}
