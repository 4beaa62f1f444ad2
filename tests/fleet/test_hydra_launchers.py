"""Hydra's stock launchers carry sweeps out, too: same words, same store, no traces."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest
from slurm_project import SlurmProject, files_with, killed_at, login

from command_line import DOUBLE, Project
from kernloom.base.errors import UnavailableError
from kernloom.base.places import find_places
from kernloom.cli import hydra_app
from kernloom.cli.hydra_documents import DOCUMENTS, print_documents
from kernloom.config.groups import Groups
from kernloom.config.override_parser import parse_overrides
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


def test_the_documents_of_all_jobs_are_one(project: Project) -> None:
    needs_module("hydra_plugins.hydra_joblib_launcher")
    project.add("good")
    project.add("segv", "(void)n; (void)x; (void)y; *(volatile int *)8 = 1;")
    words = ("run", "-m", "hydra/launcher=joblib", "workload=good,segv", "workload.sizes.n=100")
    done = project.run(*words, "output=json")
    assert done.code == 1, done.stderr
    assert [trial["status"] for trial in done.trials] == ["ok", "crashed"]
    assert done.document["build"]["built"] >= 2
    lines = project.run(*words, "output=jsonl").lines
    assert [line["workload"] for line in lines] == ["good", "segv"]
    assert "verified" in project.run(*words).stdout, "a table for people"
    wrong = project.run(*words, "output=csv")
    assert wrong.code == 2
    assert "jobs that Hydra launches have no output=csv" in wrong.stderr


def test_an_error_of_a_job_is_in_the_document(shared_project: Project) -> None:
    words = ("run", "-m", "hydra/launcher=basic", "workload=axpy", "sed=1")
    done = shared_project.json(*words)
    assert done.code == 2, done.stderr
    assert "unknown key 'sed'" in done.document["error"]["message"]


def test_the_document_of_a_killed_job_is_left_out(tmp_path: Path) -> None:
    (tmp_path / DOCUMENTS).mkdir()
    for number, text in enumerate(['{"trials": [1], "build": {"built": 2}}', '{"trials": [', ""]):
        (tmp_path / DOCUMENTS / str(number)).write_text(text)
    out = io.StringIO()
    print_documents(tmp_path, "json", out)
    document = json.loads(out.getvalue())
    assert (document["trials"], document["build"]["built"]) == ([1], 2)


@pytest.mark.parametrize("key", ["hydra.sweep.dir", "hydra.output_subdir"])
def test_hydra_s_folder_cannot_be_moved(shared_project: Project, key: str) -> None:
    word = f"{key}={shared_project.folder / 'elsewhere'}"
    done = shared_project.run("run", "-m", "hydra/launcher=basic", "workload=axpy", word)
    assert done.code == 2
    assert f"{key} cannot be set" in done.stderr
    assert not (shared_project.folder / "elsewhere").exists()


@pytest.mark.parametrize("command", ["plan", "check", "build", "explain"])
def test_only_runs_are_launched_by_hydra(shared_project: Project, command: str) -> None:
    done = shared_project.run(command, "-m", "hydra/launcher=basic", "workload=axpy")
    assert done.code == 2
    assert "'hydra/launcher=basic' is a setting of Hydra's own" in done.stderr


def test_hydra_s_settings_without_a_sweep_are_refused(shared_project: Project) -> None:
    done = shared_project.run("run", "hydra/launcher=joblib", "workload=axpy")
    assert done.code == 2
    assert "Add -m" in done.stderr


def test_a_launcher_that_is_not_there_is_said(shared_project: Project) -> None:
    done = shared_project.run("run", "-m", "hydra/launcher=nosuch", "workload=axpy")
    assert done.code == 3
    assert done.stderr.startswith("kernloom: error: Hydra has no launcher 'nosuch' here\n")
    assert "basic" in done.stderr
    assert len(done.stderr.splitlines()) == 2, "nothing but our own words"


def test_a_launcher_that_is_not_installed_is_said_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, shared_project: Project
) -> None:
    monkeypatch.setitem(hydra_app.PACKAGES["launcher"], "paper", "hydra-paper-launcher")
    places = find_places(shared_project.folder)
    groups = Groups(places.folders("configs"))
    overrides = parse_overrides(["hydra/launcher=paper"], groups, multirun=True, to_hydra=True)
    with pytest.raises(UnavailableError, match="no launcher 'paper'") as caught:
        hydra_app.run_by_hydra(places, overrides)
    assert "pip install hydra-paper-launcher  (installed: basic" in caught.value.hint


def test_a_job_that_is_killed_fails_the_sweep(project: Project) -> None:
    needs_module("hydra_plugins.hydra_joblib_launcher")
    project.add("good")
    kill = f"kill(getppid(), SIGKILL); {DOUBLE}"
    project.add("killer", kill, head="#include <signal.h>\n#include <unistd.h>")
    done = project.run("run", "-m", "hydra/launcher=joblib", "workload=good,killer")
    assert done.code == 1, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("codes", "code"),
    [([0, 0], 0), ([0, -9], 1), ([0, 3, 3], 3), ([1, 3], 1), ([2, 0], 2), ([130, 0], 130)],
)
def test_the_exit_code_of_a_sweep_is_that_of_all_jobs_that_failed(
    codes: list[int], code: int
) -> None:
    assert hydra_app.exit_code_of_jobs(codes) == code


def test_the_store_goes_to_the_jobs_and_not_to_hydra(project: Project) -> None:
    project.add("good")
    project.write("configs/store/team.yaml", "name: sqlite\npath: mine.db\nurl: null\n")
    launcher = ["hydra/launcher=basic", "workload=good,axpy"]
    done = project.run("run", "-m", *launcher, "store=team")
    assert done.code == 0, done.stdout + done.stderr
    assert (project.folder / "mine.db").exists()
    assert not (project.folder / ".kernloom/store.db").exists()


@pytest.mark.parametrize("place", ["word", "file"])
def test_the_password_of_a_store_is_in_no_file_when_hydra_s_sweep_is_killed(
    project: Project, place: str
) -> None:
    url = "postgresql+psycopg://me:S3CRET@nowhere.invalid/trials"
    project.write("configs/store/team.yaml", f"name: postgres\npath: null\nurl: {url}\n")
    # The jobs themselves refuse the case, before they would compose or open a store.
    words = ["hydra/launcher=basic", "workload=axpy,matmul", "case=nosuch"]
    store = ["store=team"] if place == "file" else ["store=postgres", f"store.url='{url}'"]
    killed = login(project, killed_at("kernloom.cli.hydra_app", "shutil.rmtree"))
    done = project.run("run", "-m", *words, *store, env=killed)
    assert done.code == -9, done.stdout + done.stderr
    (folder,) = project.build.glob("hydra-*")
    assert files_with("S3CRET", folder) == []
