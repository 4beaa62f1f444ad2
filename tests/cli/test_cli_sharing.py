"""Several engines that are given the same sweep carry out each of its trials once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from command_line import DOUBLE, KERNEL, PATIENCE_S, Project
from kernloom.base.places import find_places
from kernloom.fleet.local import Local, LocalSettings
from kernloom.run import execution
from kernloom.run.assembly import Assembly
from kernloom.run.progress import NoProgress
from kernloom.store.store import open_store
from parsed import plans_of

ENGINES = 3
SWEEP = ("run", "-m", "workload=shared", "output=json")
SIZES = f"workload.sizes.n={','.join(str(size) for size in range(100, 112))}"
ROUNDS = (
    *("measure=standard", "measure.together=4", "measure.samples=3", "measure.min_sample_us=50"),
    *("measure.min_rounds=2", "measure.max_rounds=2", "measure.bound=1", "measure.span_s=0"),
)


def run_at_once(project: Project, *words: str, number: int = ENGINES) -> list[dict[str, int]]:
    """How many trials each engine reports, and how many of them another one has carried out."""
    engines = [project.start(*SWEEP, *words) for _ in range(number)]
    done = [engine.communicate(timeout=PATIENCE_S) for engine in engines]
    assert [engine.returncode for engine in engines] == [0] * number, done
    reported = [json.loads(stdout)["trials"] for stdout, _ in done]
    assert all(trial["status"] == "ok" for trials in reported for trial in trials)
    return [{"all": len(t), "reused": sum(trial["reused"] for trial in t)} for t in reported]


@pytest.mark.parametrize(
    "words",
    [
        (),
        pytest.param(ROUNDS, marks=pytest.mark.slow),
        pytest.param(("fleet.overlap=true",), marks=pytest.mark.slow),
        pytest.param(("fleet.exclusive=measuring",), marks=pytest.mark.slow),
        pytest.param(("rerun=failed",), marks=pytest.mark.slow),
    ],
    ids=["quick", "rounds", "overlap", "exclusive", "rerun failed"],
)
def test_engines_at_once_store_each_trial_once(project: Project, words: tuple[str, ...]) -> None:
    project.add("shared")
    reported = run_at_once(project, SIZES, *words)
    assert [engine["all"] for engine in reported] == [12] * ENGINES
    assert sum(engine["reused"] for engine in reported) == 12 * (ENGINES - 1)
    assert len(project.json("results", "--history").trials) == 12


def test_a_trial_that_another_engine_stores_after_the_look_into_the_store_is_taken(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.add("shared")
    assembly = Assembly(find_places(project.folder))
    plans = plans_of(assembly, ["workload=shared"], multirun=False)
    look = execution.stored_trials

    def look_and_be_overtaken(*arguments: Any) -> Iterator[Any]:
        yield from look(*arguments)
        assert project.run("run", "workload=shared").code == 0

    monkeypatch.setattr(execution, "stored_trials", look_and_be_overtaken)
    with open_store(project.folder / ".kernloom" / "store.db") as store:
        here = Local(assembly, NoProgress(), LocalSettings("local"))
        (trial,) = execution.Execution(assembly, store, NoProgress(), here).execute(plans).trials
    assert trial.reused
    assert len(project.json("results", "--history").trials) == 1


@pytest.mark.slow
def test_engines_at_once_store_a_trial_that_fails_once(project: Project) -> None:
    project.add("shared", f"{DOUBLE} for (volatile int go = n == 105; go;) ;")
    engines = [project.start(*SWEEP, SIZES, "timeout=1") for _ in range(ENGINES)]
    for engine in engines:
        stdout, _ = engine.communicate(timeout=PATIENCE_S)
        assert [t["status"] for t in json.loads(stdout)["trials"]].count("timeout") == 1
    assert len(project.json("results", "--history").trials) == 12


@pytest.mark.slow
def test_engines_that_screen_at_once_keep_the_same_points(project: Project) -> None:
    kernel = KERNEL.format(name="shared").replace(
        "function: shared", "function: shared, macros: {POINT: point}"
    )
    tunables = "tunables: {tile: {point: {values: [0, 1, 2, 3, 4, 5], 'off': 0}}}\n"
    project.add("shared", f"{DOUBLE} (void)POINT;", kernel=kernel + tunables)
    points = "select.fixed.tile.point=0,1,2,3,4,5"
    reported = run_at_once(project, points, "screen.keep=3")
    assert [engine["all"] for engine in reported] == [3] * ENGINES
    assert len(project.json("results", "--history").trials) == 3


@pytest.mark.slow
def test_rerun_all_measures_in_every_engine(project: Project) -> None:
    project.add("shared")
    reported = run_at_once(project, SIZES, "rerun=all", number=2)
    assert [engine["reused"] for engine in reported] == [0, 0]
    assert len(project.json("results", "--history").trials) == 24
