"""Sweepers of Hydra that optimise get the metric that trials are ranked by, never an exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from command_line import KERNEL, Project
from kernloom.base.errors import UsageError
from kernloom.cli.hydra_app import check_axes
from kernloom.cli.hydra_job import not_minimised
from kernloom.config.groups import Groups
from kernloom.config.override_parser import parse_overrides
from kernloom.config.overrides import Overrides
from kernloom.run.assembly import Assembly
from parts import needs, needs_module

pytestmark = pytest.mark.slow

TUNED = (
    KERNEL.format(name="tuned").replace(
        "function: tuned", "function: tuned, macros: {TIMES: times}"
    )
    + "tunables:\n  unroll:\n    times: {values: [3, 2, 1, 0], off: 1}\n"
)
BODY = """\
for (long t = 0; t < TIMES; t++)
        for (long i = 0; i < n; i++)
            ((volatile float *)y)[i] = 2 * x[i];"""
"""The same result, written so many times; never, and so wrong and fastest of all, with 0."""
OPTUNA = ("-m", "hydra/sweeper=optuna", "hydra.sweeper.n_jobs=1")
EVERY_POINT = "hydra/sweeper/sampler=grid"


@pytest.fixture
def tuned(project: Project) -> Project:
    needs_module("hydra_plugins.hydra_optuna_sweeper")
    project.add("tuned", BODY, kernel=TUNED)
    return project


@pytest.mark.parametrize(
    ("target", "metric"), [("host", "median_ns"), ("host_counted", "instructions")]
)
def test_the_best_point_that_is_right_wins(tuned: Project, target: str, metric: str) -> None:
    """A wrong kernel is the fastest, and one more point is refused: neither ends the search."""
    needs("qemu-x86_64" if target == "host_counted" else "gcc")
    key = "select.fixed.unroll.times"
    words = ("workload=tuned", f"target={target}", f"{key}=0,1,2,3,7")
    done = tuned.run("run", *OPTUNA, EVERY_POINT, *words)
    assert done.code == 1, done.stderr
    best = re.search(rf"kernloom: optuna found {key}=(\d): {metric} = (\S+)\n", done.stderr)
    assert best, done.stderr
    stored = {t["params"]["unroll"]["call"]["times"]: t for t in tuned.json("results").trials}
    assert {times: trial["status"] for times, trial in stored.items()} == {
        0: "wrong",
        1: "ok",
        2: "ok",
        3: "ok",
    }
    measured = {times: stored[times]["metrics"][metric] for times in (1, 2, 3)}
    assert int(best[1]) == min(measured, key=lambda times: measured[times])
    assert float(best[2]) == pytest.approx(min(measured.values()), rel=1e-5)
    assert not list(tuned.build.glob("hydra-*"))


def test_a_search_without_a_good_point_says_so(tuned: Project) -> None:
    words = ("workload=tuned", "select.fixed.unroll.times=0,7")
    done = tuned.run("run", *OPTUNA, EVERY_POINT, *words)
    assert done.code == 1
    assert "optuna found no point that works" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["workload.sizes.n=100,200"], "workload.sizes.n changes the work itself"),
        (["hydra.sweeper.direction=maximize", "seed=1,2"], "which is minimised"),
        (["hydra.sweeper.direction=[minimize,minimize]", "seed=1,2"], "one objective, not 2"),
        (["worklaod=good", "seed=1,2"], "Did you mean 'workload'?"),
    ],
)
def test_what_cannot_be_optimised_ends_the_search(
    tuned: Project, words: list[str], said: str
) -> None:
    some = ("hydra.sweeper.n_trials=6", "hydra.sweeper.sampler.seed=1")
    done = tuned.run("run", *OPTUNA, *some, "workload=tuned", *words)
    assert done.code == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "optuna found" not in done.stderr


def searched(*words: str) -> Overrides:
    """The overrides of a command line whose sweeper optimises."""
    given = ["hydra/sweeper=optuna", *words]
    return parse_overrides(given, Groups([]), multirun=True, to_hydra=True)


@pytest.mark.parametrize(
    "word",
    [
        "workload.sizes.n=100,200",
        "workload.sizes.n=range(1,9)",
        "++workload.sizes.n=interval(1,9)",
        "workload.dtype=choice(float32,float64)",
        "workload=axpy,softmax",
        "case=default,small",
        "target=host,riscv64",
        "+hydra.sweeper.params.workload.sizes.n=range(1,9)",
    ],
)
def test_an_axis_of_different_work_is_refused_before_the_first_job(word: str) -> None:
    with pytest.raises(UsageError, match="objectives of different work cannot be compared"):
        check_axes(searched("select.fixed.unroll.vectors=1,2", word))


def test_axes_that_leave_the_work_as_it_is_are_searched() -> None:
    fixed = ["workload.sizes.n=100", "workload.dtype=choice(float32)", "case=small"]
    check_axes(
        searched(*fixed, "workload=axpy", "toolchain=gcc,clang", "select.fixed.unroll.k=1,2")
    )
    check_axes(
        searched("target.options.index=0,1", "seed=1,2", "hydra.sweeper.params.seed=range(1,9)")
    )


def test_a_search_over_sizes_runs_nothing(tuned: Project) -> None:
    done = tuned.run("run", *OPTUNA, "workload=tuned", "workload.sizes.n=100,200")
    assert done.code == 2
    assert "HYDRA_FULL_ERROR" not in done.stderr
    assert tuned.json("results").trials == []


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({}, True),
        ({"direction": "minimize"}, True),
        ({"direction": ["maximize"]}, False),
        ({"optim": {"maximize": True}}, False),
        ({"optim": {"maximize": False}}, True),
        ({"ax_config": {"experiment": {"minimize": False}}}, False),
        ({"ax_config": {"experiment": {"minimize": True}}}, True),
    ],
)
def test_settings_that_would_maximise_a_time_are_known(
    settings: dict[str, object], fits: bool
) -> None:
    assert (not_minimised(OmegaConf.create(settings)) == "") == fits


def test_a_sweeper_that_is_not_installed_is_said_with_what_installs_it(
    shared_project: Project,
) -> None:
    done = shared_project.run("run", "-m", "hydra/sweeper=nevergrad", "workload=axpy")
    assert done.code == 3
    assert "Hydra has no sweeper 'nevergrad' here" in done.stderr
    assert "pip install hydra-nevergrad-sweeper" in done.stderr
    done = shared_project.run("run", "-m", "hydra/sweeper=nosuch", "workload=axpy")
    assert done.code == 3
    assert "Hydra has no sweeper 'nosuch' here" in done.stderr


def test_launchers_take_keys_of_open_maps_as_run_does(project: Project) -> None:
    words = ("workload=axpy", "case=small", "select.fixed.unroll.vectors=1,2")
    done = project.run("run", "-m", "hydra/launcher=basic", *words)
    assert done.code == 0, done.stderr
    chosen = [trial["params"]["unroll"] for trial in project.json("results").trials]
    assert sorted(v["vectors"] for steps in chosen for v in steps.values()) == [1, 2]


def test_launchers_take_paths_that_hydra_s_grammar_refuses(project: Project) -> None:
    fixed = project.write("my (own) choice.yaml", "unroll: {vectors: 2}\n")
    words = ("workload=axpy", "case=small", f"select.file={fixed}", "seed=1,2")
    done = project.run("run", "-m", "hydra/launcher=basic", *words)
    assert done.code == 0, done.stderr
    assert len(project.json("results").trials) == 2


@pytest.mark.parametrize(
    ("times", "code", "value"), [("2", 0, float), ("0", 1, type(None)), ("7", 2, type(None))]
)
def test_a_run_writes_its_objective_for_any_other_optimiser(
    project: Project, tmp_path: Path, times: str, code: int, value: type
) -> None:
    project.add("tuned", BODY, kernel=TUNED)
    file = tmp_path / "objective.json"
    point = f"select.fixed.unroll.times={times}"
    done = project.run("run", "workload=tuned", point, "--objective", str(file))
    assert done.code == code, done.stderr
    found = json.loads(file.read_text())
    assert isinstance(found["value"], value)
    assert found["metric"] == ("median_ns" if value is float else "")


def test_a_slip_in_the_words_leaves_no_objective(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "objective.json"
    assert project.run("run", "workload=tund", "--objective", str(file)).code == 2
    assert project.run("run", "-m", "workload=axpy", "--objective", str(file)).code == 2
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope=1,2"], "unknown key 'nope'"),
        (["measure.sampels=1,2"], "measure: unknown key 'sampels'"),
        (["workload=nosuch", "seed=1,2"], "unknown workload 'nosuch'"),
        (["+workload=good"], "Write workload=good without +"),
        (["experiment=compilers"], "experiment=compilers describes a sweep by Kernloom"),
        (["sweep.where=seed > 1", "seed=1,2"], "this is a sweep by Kernloom"),
    ],
)
def test_what_every_job_would_refuse_is_said_once(
    shared_project: Project, words: list[str], said: str
) -> None:
    done = shared_project.run("run", "-m", "hydra/launcher=basic", *words)
    assert done.code == 2, done.stderr
    assert done.stderr.count("kernloom: error: ") == 1
    assert said in done.stderr and "Add -m" not in done.stderr


@pytest.mark.parametrize("value", ["interval(1,2)", "range(1,3)", "choice(1,2)", "1", "[1"])
def test_axes_of_sweepers_are_left_to_them(value: str) -> None:
    composer = Assembly().composer
    words = ["hydra/sweeper=optuna", "workload=axpy"]
    for key in ("select.fixed.unroll.vectors", "measure.samples"):
        axes = composer.parse([*words, f"{key}={value}"], multirun=True, to_hydra=True)
        composer.check_for_hydra(axes)


def test_a_search_without_an_axis_says_so(tuned: Project) -> None:
    done = tuned.run("run", *OPTUNA, "hydra.sweeper.n_trials=1", "workload=tuned")
    assert done.code == 0, done.stderr
    assert "optuna had one point only: no key was given several values" in done.stderr
