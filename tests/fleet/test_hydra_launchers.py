"""Hydra's stock launchers carry sweeps out, too: same words, same store, no traces."""

from __future__ import annotations

from collections import Counter

import pytest
from slurm_project import SlurmProject

from command_line import DOUBLE, Project
from parts import needs_module

pytestmark = pytest.mark.slow


def check_swept(project: Project, *launcher: str) -> None:
    project.add("good")
    project.add("segv", "(void)n; (void)x; (void)y; *(volatile int *)8 = 1;")
    done = project.run("run", "-m", *launcher, "workload=good,segv", "workload.sizes.n=100,200")
    assert done.code == 1, done.stdout + done.stderr
    trials = project.json("results").trials
    assert Counter(trial["status"] for trial in trials) == {"ok": 2, "crashed": 2}
    assert {path.name for path in project.folder.iterdir()} == {
        ".kernloom",
        "configs",
        "kernloom.yaml",
        "templates",
    }
    assert not list(project.build.glob("hydra-*"))
    local = project.json("run", "-m", "workload=good,segv", "workload.sizes.n=100,200")
    assert {trial["id"] for trial in local.trials} == {trial["id"] for trial in trials}
    assert len(project.json("results", "--history").trials) == 4, "all of them were reused"


def test_a_sweep_by_the_joblib_launcher(project: Project) -> None:
    needs_module("hydra_plugins.hydra_joblib_launcher")
    check_swept(project, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def test_a_sweep_by_the_submitit_launcher(sweeps: SlurmProject) -> None:
    needs_module("hydra_plugins.hydra_submitit_launcher")
    check_swept(sweeps.project, "hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=5")


def test_a_project_s_file_shadows_a_built_in_one_under_hydra(project: Project) -> None:
    needs_module("hydra_plugins.hydra_joblib_launcher")
    project.add("axpy", DOUBLE)
    done = project.run("run", "-m", "hydra/launcher=joblib", "workload=axpy", "workload.sizes.n=64")
    assert done.code == 0, done.stdout + done.stderr


def test_hydra_s_settings_without_a_sweep_are_refused(shared_project: Project) -> None:
    done = shared_project.run("run", "hydra/launcher=joblib", "workload=axpy")
    assert done.code == 2
    assert "Add -m" in done.stderr


def test_a_launcher_that_is_not_there_is_said(shared_project: Project) -> None:
    done = shared_project.run("run", "-m", "hydra/launcher=nosuch", "workload=axpy")
    assert done.code == 3
    assert "nosuch" in done.stderr
    assert "Traceback" not in done.stderr
