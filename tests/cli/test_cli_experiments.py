"""Presets: one word for an experiment or a sweep, and everything in it can still be overridden."""

from __future__ import annotations

import pytest

from command_line import Project
from kernloom.base.places import share_folder
from kernloom.config.groups import Groups

SHIPPED = Groups([share_folder() / "configs"]).options("experiment")
PRESET = "# @package _global_\ndefaults: [override /workload: good]\n"


def test_at_least_five_are_shipped() -> None:
    assert len(SHIPPED) >= 5
    assert "gemm_roofline" in SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_preset_can_be_planned(shared_project: Project, name: str) -> None:
    done = shared_project.json("plan", "-m", f"experiment={name}")
    assert done.code == 0, done.stderr
    assert done.document["summary"]["points"] >= 2


def test_a_preset_of_a_project_is_run_and_overridden(project: Project) -> None:
    project.add("good")
    project.write(
        "configs/experiment/mine.yaml",
        "# @package _global_\n"
        "defaults:\n  - override /workload: good\n  - override /measure: standard\n"
        "seed: 7\nworkload: {sizes: {n: 64}}\nmeasure: {samples: 3}\n",
    )
    words = ("experiment=mine", "measure=quick")
    done = project.json("run", *words)
    assert done.code == 0, done.stderr
    (trial,) = project.json("results").trials
    config = trial["config"]
    assert (config["workload"]["name"], config["workload"]["sizes"]) == ("good", {"n": 64})
    assert (config["measure"]["name"], config["measure"]["samples"]) == ("quick", 3)
    assert config["seed"] == 7
    assert "experiment" not in config
    swept = project.json("plan", "-m", *words, "workload.sizes.n=64,128")
    assert [entry["stored"] for entry in swept.trials] == [True, False]


def test_presets_can_be_swept(project: Project) -> None:
    project.add("good")
    for name, size in (("a", 10), ("b", 20)):
        text = PRESET + f"workload: {{sizes: {{n: {size}}}}}\n"
        project.write(f"configs/experiment/{name}.yaml", text)
    done = project.json("plan", "-m", "experiment=a,b")
    assert [trial["point"] for trial in done.trials] == [{"experiment": "a"}, {"experiment": "b"}]
    assert len({trial["id"] for trial in done.trials}) == 2
    none = project.json("plan", "-m", "experiment=a,null", "workload=good")
    assert [trial["point"]["experiment"] for trial in none.trials] == ["a", None]
    plain = project.json("plan", "workload=good")
    assert none.trials[1]["id"] == plain.trials[0]["id"] != none.trials[0]["id"]


def test_check_verifies_the_preset_s_workload_only(project: Project) -> None:
    project.add("good")
    project.write("configs/experiment/mine.yaml", PRESET)
    done = project.json("check", "experiment=mine")
    assert done.code == 0, done.stderr
    assert {trial["workload"] for trial in done.trials} == {"good"}


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("", ["experiment=gemm_rofline"], ["unknown experiment", "Did you mean 'gemm_roofline'?"]),
        ("", ["experiment=gemm_roofline"], ["experiment=gemm_roofline is a sweep", "Add -m"]),
        (
            "defaults: [override /workload: axpy]\n",
            ["experiment=mine"],
            ["must be `# @package _global_`", "go below `experiment`"],
        ),
        (
            "# @package _global_\ndefaults: [override /workload: axpi]\n",
            ["experiment=mine"],
            ["unknown workload 'axpi' in a defaults list", "Did you mean 'axpy'?"],
        ),
        ("# @package _global_\nsed: 3\n", ["experiment=mine"], ["unknown key 'sed'", "'seed'?"]),
    ],
)
def test_a_wrong_preset_is_explained(
    project: Project, text: str, words: list[str], said: list[str]
) -> None:
    if text:
        project.write("configs/experiment/mine.yaml", text)
    done = project.run("plan", *words)
    assert done.code == 2, done.stderr
    for part in said:
        assert part in done.stderr
