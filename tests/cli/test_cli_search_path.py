"""hydra.searchpath and --config-dir add folders of config files."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Project

MINE = "defaults: [gcc, _self_]\nflags: [-O2]\n"
ROOT = "hydra: {{searchpath: ['{folder}']}}\n"


@pytest.fixture
def lab(project: Project) -> Path:
    """A folder of a lab's configs, outside of the project."""
    folder = project.folder.parent / "lab"
    for name, text in {
        "toolchain/mine.yaml": MINE,
        "toolchain/gcc.yaml": "about: it must not be used\n",
        "experiment/first.yaml": "# @package _global_\ndefaults: [override /toolchain: mine]\n",
        "hydra/sweeper/search.yaml": "defaults: [optuna]\nn_trials: 2\nn_jobs: 1\n"
        "params: {select.fixed.unroll.vectors: 'choice(1,2)'}\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def flags(project: Project, *words: str) -> object:
    done = project.json("plan", "--cfg", "job", *words)
    assert done.code == 0, done.stderr
    return done.document["toolchain"].get("flags")


def test_a_folder_of_the_search_path_adds_options(project: Project, lab: Path) -> None:
    for words in (
        ["hydra.searchpath=[../lab]"],
        [f"hydra.searchpath=[file://{lab}]"],
        ["+hydra.searchpath=['${oc.env:HOME}/../lab']"],
        ["--config-dir", "../lab"],
        ["-cd", str(lab)],
        ["--config-dir=../lab", f"hydra.searchpath=[{project.folder}]"],
    ):
        planned = project.json("plan", "workload=axpy", "toolchain=mine", *words)
        assert planned.code == 0, planned.stderr
        (trial,) = planned.trials
        assert trial["workload"] == "axpy"
    assert flags(project, "toolchain=mine", "hydra.searchpath=[../lab]") == ["-O2"]
    assert flags(project, "experiment=first", "--config-dir=../lab") == ["-O2"]


def test_it_shadows_nothing(project: Project, lab: Path) -> None:
    assert flags(project, "toolchain=gcc", "--config-dir=../lab") == flags(project)


def test_a_package_is_a_folder_of_the_search_path(project: Project, lab: Path) -> None:
    (lab / "__init__.py").touch()
    engine = {"PYTHONPATH": f"{Path(__file__).resolve().parents[2] / 'engine'}:{lab.parent}"}
    done = project.run("plan", "toolchain=mine", "hydra.searchpath=[pkg://lab]", env=engine)
    assert done.code == 0, done.stderr


def test_a_project_s_root_config_names_a_search_path(project: Project, lab: Path) -> None:
    shipped = (Path(__file__).resolve().parents[2] / "configs/kernloom.yaml").read_text()
    project.write("configs/kernloom.yaml", shipped + ROOT.format(folder=lab))
    done = project.run("plan", "workload=axpy", "toolchain=mine")
    assert done.code == 0, done.stderr
    project.write("configs/kernloom.yaml", shipped + ROOT.format(folder="nosuch"))
    done = project.run("plan", "workload=axpy")
    assert done.code == 2
    assert "hydra.searchpath: 'nosuch' does not exist" in done.stderr


def test_a_stored_trial_says_where_its_config_was_found(project: Project, lab: Path) -> None:
    done = project.json("run", "workload=axpy", "case=small", "toolchain=mine", "-cd=../lab")
    assert done.code == 0, done.stderr
    again = project.json("run", "workload=axpy", "case=small", "toolchain=mine", "-cd=../lab")
    assert again.trial["id"] == done.trial["id"]
    assert len(project.json("results", "--history").trials) == 1


def test_comparisons_and_recipes_take_a_folder(project: Project, lab: Path) -> None:
    words = ("--config-dir", "../lab", "--with", "workload=axpy case=small measure=quick")
    done = project.json("compare", *words, "toolchain=gcc", "toolchain=mine")
    assert done.code == 0, done.stderr
    (compared,) = done.document["comparisons"]
    assert compared["b"] == "toolchain=mine"
    recipe = ("workload=axpy", "case=small", "toolchain=mine", "recipe=made.yaml")
    assert project.run("run", *recipe, "--config-dir=../lab").code == 0
    done = project.run("recipe", "run", "made.yaml")
    assert done.code == 2
    assert "toolchain" in done.stderr
    done = project.json("recipe", "run", "made.yaml", "-cd", "../lab")
    assert done.code == 0, done.stderr
    assert done.trial["verified"]


def test_commands_that_list_options_take_a_folder(project: Project, lab: Path) -> None:
    root = Path(__file__).resolve().parents[2] / "configs"
    target = (root / "target/host.yaml").read_text().replace("name: host", "name: bench")
    store = "defaults: [sqlite, _self_]\npath: ../lab/team.db\n"
    for name, text in {"target/bench.yaml": target, "store/team.yaml": store}.items():
        (lab / name).parent.mkdir(exist_ok=True)
        (lab / name).write_text(text)
    searched = ("--config-dir", "../lab")

    def listed(*words: str) -> set[str]:
        return {entry["name"] for entry in project.json("targets", *words).document}

    assert "bench" in listed(*searched)
    assert "bench" not in listed()
    assert "mine" in {t["name"] for t in project.json("doctor", *searched).document["toolchains"]}
    words = ("workload=axpy", "case=small", "store=team")
    assert project.run("run", *words, *searched).code == 0
    assert len(project.json("results", "store=team", *searched).trials) == 1
    assert "'nosuch' does not exist" in project.run("build", "--all", "-cd", "nosuch").stderr
    # The folders of the project's root config count here, too.
    shipped = (root / "kernloom.yaml").read_text()
    project.write("configs/kernloom.yaml", shipped + ROOT.format(folder=lab))
    assert "bench" in listed()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hydra.searchpath=[../lap]", ["hydra.searchpath: '../lap' does not exist", "mean 'lab'?"]),
        ("hydra.searchpath=[kernloom.yaml]", ["'kernloom.yaml' is not a folder"]),
        ("hydra.searchpath=[no/such/place]", ["does not exist", "There is no ", "no/such either"]),
        ("hydra.searchpath=[s3://bucket]", ["unknown scheme 's3'", "Allowed: a folder, file://"]),
        ("hydra.searchpath=[pkg://no.such]", ["there is no package 'no.such' here"]),
        ("hydra.searchpath=['']", ["'' "]),
        ("hydra.searchpath=../lab", ["a search path is a list of folders", "[FOLDER,FOLDER]"]),
        ("hydra.searchpath=[1,2]", ["a search path is a list of folders"]),
        ("hydra.searchpath=[", ["cannot be read"]),
        ("hydra.searchpath=['${oc.env:NO_SUCH_VARIABLE}']", ["'NO_SUCH_VARIABLE' not found"]),
        ("--config-dir=", ["--config-dir needs a folder"]),
    ],
)
def test_a_wrong_search_path_is_explained(
    project: Project, lab: Path, word: str, said: list[str]
) -> None:
    done = project.run("plan", "workload=axpy", word)
    assert done.code == 2, done.stderr
    for text in said:
        assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_an_axis_that_a_sweeper_s_file_names_needs_no_plus(project: Project, lab: Path) -> None:
    """The file is found on the search path, and the jobs find the toolchain there."""
    words = ("workload=axpy", "case=small", "toolchain=mine", "--config-dir=../lab")
    done = project.run("run", "-m", "hydra/sweeper=search", *words)
    assert done.code == 0, done.stderr
    assert "kernloom: optuna found select.fixed.unroll.vectors=" in done.stderr
    trials = project.json("results").trials
    assert {trial["config"]["toolchain"]["name"] for trial in trials} == {"mine"}
