"""`-m` with sweeps from files and the command line: planned, run, stored and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import Project

SIZES = """\
axes:
  workload.sizes.N: {powers_of_two: [64, 512]}
  select.fixed.unroll.vectors: [1, 2]
where: N * vectors <= 512
exclude: {N: 64, vectors: 2}
points:
  odd: {workload.sizes.N: 1001}
"""
AXPY = ("workload=axpy", "sweep=sizes")
N, VECTORS = "workload.sizes.N", "select.fixed.unroll.vectors"
POINTS: list[dict[str, Any]] = [
    {N: 64, VECTORS: 1},
    {N: 128, VECTORS: 1},
    {N: 128, VECTORS: 2},
    {N: 256, VECTORS: 1},
    {N: 256, VECTORS: 2},
    {N: 512, VECTORS: 1},
    {"sweep.point": "odd", N: 1001},
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    """A project with a sweep of its own, carried out."""
    project = Project(tmp_path_factory.mktemp("sweeps"))
    project.take_runner_from(shared_project)
    project.write("configs/sweep/sizes.yaml", SIZES)
    done = project.json("run", "-m", *AXPY, "recipe=sizes.yaml")
    assert done.code == 0, done.stderr
    assert [trial["point"] for trial in done.trials] == POINTS
    return project


def test_a_plan_says_points_artifacts_and_how_long_it_would_take(
    informed_project: Project,
) -> None:
    informed_project.write("configs/sweep/sizes.yaml", SIZES)
    document = informed_project.json("plan", "-m", *AXPY).document
    kernels = [item for item in document["artifacts"] if item["name"] != "runner"]
    assert document["summary"] == {
        "points": 7,
        "artifacts": len(kernels) + 1,
        "cached": 0,
        "to_build": len(kernels) + 1,
        "stored": 0,
        "to_run": 7,
        "refused": 0,
        "same": 0,
    }
    assert [trial["point"] for trial in document["trials"]] == POINTS
    estimate = document["estimate"]
    parts = (estimate["build"], estimate["run"])
    assert [(part["from_earlier"], part["guessed"]) for part in parts] == [
        (0, len(kernels) + 1),
        (0, 7),
    ]
    assert estimate["seconds"] == pytest.approx(sum(part["seconds"] for part in parts), abs=0.01)
    text = informed_project.run("plan", "-m", *AXPY).stdout
    assert "a guess: nothing like it is known" in text.splitlines()[-1]


def test_an_estimate_goes_by_what_was_built_and_run_before(home: Project) -> None:
    words = ("plan", "-m", *AXPY, "toolchain.extra_flags=[-g]")
    estimate = home.json(*words).document["estimate"]
    assert (estimate["build"]["guessed"], estimate["run"]["guessed"]) == (0, 0)
    assert estimate["run"]["from_earlier"] == 7
    closing = home.run(*words).stdout.splitlines()[-1]
    assert closing.endswith("by what was built and run before")


def test_nothing_is_left_to_do_after_a_sweep(home: Project) -> None:
    document = home.json("plan", "-m", *AXPY).document
    assert (document["summary"]["to_build"], document["summary"]["to_run"]) == (0, 0)
    assert document["estimate"]["seconds"] == 0
    again = home.json("run", "-m", *AXPY)
    assert again.document["build"]["built"] == 0
    assert all(trial["reused"] for trial in again.trials if "reused" in trial)


def test_a_plan_of_many_points_stays_short_for_people(home: Project) -> None:
    words = ("plan", "-m", "workload=axpy", f"{N}=range(1,301)")
    lines = home.run(*words).stdout.splitlines()
    assert len(lines) < 40
    assert "... 275 more trials; all of them with output=json" in lines
    assert "300 trials" in lines[-2]
    assert len(home.json(*words).document["trials"]) == 300


def test_a_named_point_is_found_in_the_store_by_its_name(home: Project) -> None:
    (trial,) = home.json("results", "sweep.point=odd").trials
    assert trial["point"] == POINTS[-1]


def test_a_trial_keeps_its_own_config_and_not_the_sweeps(home: Project) -> None:
    recipe = (home.folder / "sizes.yaml").read_text(encoding="utf-8")
    assert "powers_of_two" not in recipe


def test_the_recipe_of_a_sweep_replays_in_its_order(
    home: Project, informed_project: Project
) -> None:
    done = informed_project.json("recipe", "run", str(home.folder / "sizes.yaml"))
    assert done.code == 0, done.stderr
    assert [trial["point"] for trial in done.trials] == POINTS


def test_a_point_alone_is_the_same_trial(home: Project) -> None:
    document = home.json("plan", "workload=axpy", f"{N}=128", f"{VECTORS}=2").document
    assert [trial["stored"] for trial in document["trials"]] == [True]


def test_a_sweep_without_m_is_refused_with_what_to_do(home: Project) -> None:
    done = home.run("run", *AXPY)
    assert (done.code, done.stdout) == (2, "")
    assert "a sweep is described, but this is a single run\n  Add -m" in done.stderr


def test_a_sample_larger_than_the_sweep_is_told_beside_the_document(home: Project) -> None:
    done = home.json("plan", "-m", *AXPY, "sweep.sample.count=99")
    assert len(done.document["trials"]) == 7
    assert "6 of the 99 points asked for were found" in done.stderr


def test_a_shipped_sweep_can_be_shadowed(project: Project) -> None:
    project.write("configs/sweep/tiles.yaml", "axes: {seed: [1, 2]}\n")
    trials = project.json("plan", "-m", "workload=axpy", "sweep=tiles").document["trials"]
    assert [trial["point"] for trial in trials] == [{"seed": 1}, {"seed": 2}]


TWINS = """\
axes: {select.fixed.unroll.vectors: [1, 2], workload.sizes.N: [64, 65]}
points: {same: {workload.sizes.N: 64, select.fixed.unroll.vectors: 2}}
"""


def rows_of(project: Project, *words: str) -> tuple[list[str], list[list[str]], str]:
    """The columns of a sweep's table, its rows, and the line below."""
    lines = project.run("run", "-m", "workload=axpy", *words).stdout.splitlines()
    closing = next(line for line in lines if " verified, " in line)
    header = lines[0].split()
    return header, [line.split() for line in lines[1:] if line.startswith("axpy")], closing


def test_points_that_are_the_same_trial_are_counted_once_and_called_so(project: Project) -> None:
    project.write("configs/sweep/twins.yaml", TWINS)
    words = ("workload=axpy", "sweep=twins")
    assert project.run("run", "workload=axpy", f"{N}=65", f"{VECTORS}=1").code == 0
    planned = project.run("plan", "-m", *words).stdout
    assert "5 trials: 3 to run, 1 stored, 1 the same as another point" in planned
    assert planned.count("to run\n") == 3
    assert planned.count("same as another point\n") == 2
    summary = project.json("plan", "-m", *words).document["summary"]
    assert [summary[n] for n in ("points", "to_run", "stored", "same")] == [5, 3, 1, 1]

    header, rows, closing = rows_of(project, "sweep=twins")
    assert header[3:6] == ["vectors", "N", "point"]
    assert "5 verified, 0 failed, 1 from the store, 1 the same as another point;" in closing
    assert [row[3:5] for row in rows[:4]] == [["1", "64"], ["1", "65"], ["2", "64"], ["2", "65"]]
    assert [row[3:6] for row in rows if "same" in row] == [["2", "64", "same"]]
    assert "(same)" in rows[4] and "(stored)" in rows[1]
    assert sum("(same)" in row or "(stored)" in row for row in rows) == 2

    again, rows, closing = rows_of(project, "sweep=twins")
    assert again == header
    assert "5 verified, 0 failed, 4 from the store, 1 the same as another point;" in closing
    assert [row[3:6] for row in rows if "same" in row] == [["2", "64", "same"]]
    (stored,) = project.json("results", "sweep.point=same").trials
    assert stored["reuses"] == 1


def test_a_value_given_twice_is_one_trial_at_two_points(project: Project) -> None:
    words = ("run", "-m", "workload=axpy", f"{N}=64,64,65")
    trials = project.json(*words).trials
    assert trials[0]["id"] == trials[1]["id"]
    assert [trial["point"] for trial in trials] == [{N: 64}, {N: 64}, {N: 65}]
    assert [trial.get("same", False) for trial in trials] == [False, True, False]
    assert not any(trial["reused"] for trial in trials)
    lines = project.run(*words, "output=jsonl").lines
    assert [(line["point"][N], line.get("same", False)) for line in lines] == [
        (64, False),
        (65, False),
        (64, True),
    ]
    assert len(project.json("results", "--history").trials) == 2


def test_screening_without_m_is_refused_as_a_sweep_is(home: Project) -> None:
    for word in ("screen.keep=2", "screen={keep: 2}"):
        done = home.run("run", "workload=axpy", word)
        assert (done.code, done.stdout) == (2, "")
        assert "this is a single run\n  Add -m" in done.stderr
    assert home.run("plan", "workload=axpy", "screen.keep=0").code == 0


def test_a_size_without_a_value_is_said_to_have_none(home: Project) -> None:
    done = home.run("plan", "workload=axpy", f"{N}=")
    assert done.stderr == f"kernloom: error: {N}: has no value\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sweep=sise",), "Did you mean 'sizes'?"),
        (("sweep=sizes", "sweep.where=M < 3"), "unknown name 'M'"),
        (("sweep=sizes", "sweep.where=N < 0"), "where 'N < 0' removed 8"),
        (("sweep=sizes", f"{N}=1,2"), f"'{N}' is swept twice"),
        (("sweep=sizes", "sweep.axes.sede=[1]", "~sweep.where"), "Did you mean 'seed'?"),
        (("seed=interval(0,1)",), "continuous interval"),
    ],
)
def test_a_mistake_ends_with_a_message_and_no_traceback(
    home: Project, words: tuple[str, ...], said: str
) -> None:
    done = home.run("plan", "-m", "workload=axpy", *words)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_shipped_sweeps_can_be_planned(shared_project: Project) -> None:
    folder = Path(__file__).resolve().parents[2] / "configs" / "sweep"
    for name in sorted(path.stem for path in folder.glob("*.yaml")):
        document = shared_project.json("plan", "-m", f"sweep={name}").document
        assert document["summary"]["refused"] == 0, name
