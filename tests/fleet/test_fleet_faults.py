"""What may go wrong around a sweep on Slurm costs no trial, and makes none of what is none."""

from __future__ import annotations

import json
import os
import select
import signal
from pathlib import Path

import pytest
from slurm_project import OTHER_LOGIN, SlurmProject, files_with, killed_at, login

from command_line import ENGINE, PATIENCE_S

pytestmark = pytest.mark.slow

SLURM = "kernloom.fleet.slurm.fleet"
KILLED_AT_CLOSE = killed_at(SLURM, "Slurm._close")
KILLED_AFTER_SUBMIT = f"import {SLURM}\nreal_submit = {SLURM}.submit\n" + killed_at(
    SLURM, "submit", "real_submit(*arguments, **named)"
)
WAITS_FOR_SIGNAL = """
FILE *file = fopen("{reached}.part", "w");
fprintf(file, "%d %d", (int)getpid(), (int)getppid());
fclose(file);
rename("{reached}.part", "{reached}");
for (;;) pause();
(void)n; (void)x; (void)y;
"""
"""A kernel that says which process it and its supervisor are, and waits for its end."""


@pytest.mark.parametrize("rerun", ["none", "failed", "all"])
def test_measuring_anew_never_gives_what_a_killed_engine_had_gathered(
    sweeps: SlurmProject, rerun: str
) -> None:
    project = sweeps.project
    project.add("good")
    words = sweeps.words("workload=good")
    killed = project.run(*words, f"rerun={rerun}", env=login(project, KILLED_AT_CLOSE))
    assert killed.code == -9, killed.stderr
    assert (sweeps.attempts(), len(sweeps.leftovers())) == (1, 1)
    done = project.json(*words, "rerun=all")
    assert done.code == 0, done.stderr
    assert sweeps.attempts() == 2
    assert sweeps.leftovers() == []


def test_what_was_gathered_whole_is_taken_away_by_the_next_command(sweeps: SlurmProject) -> None:
    project = sweeps.project
    project.add("good")
    words = sweeps.words("workload=good")
    assert project.run(*words, env=login(project, KILLED_AT_CLOSE)).code == -9
    assert project.json(*words).trial["reused"]
    assert sweeps.leftovers() == []


def test_a_login_of_another_kind_goes_on_with_the_sweep(sweeps: SlurmProject) -> None:
    project = sweeps.project
    project.add("good")
    words = sweeps.words("workload=good")
    other = login(project, OTHER_LOGIN + KILLED_AFTER_SUBMIT)
    assert project.run(*words, env=other).code == -9
    done = project.run(*words)
    assert done.code == 0, done.stderr
    assert "going on with the submission" in done.stderr
    again = project.json(*words, env=login(project, OTHER_LOGIN))
    assert again.trial["reused"]
    assert sweeps.attempts() == 1


def test_a_lost_task_leaves_what_this_machine_has_measured(sweeps: SlurmProject) -> None:
    project = sweeps.project
    sweeps.add_waiting("waits")
    sweeps.gate.touch()
    assert project.json("run", "-m", "workload=waits").code == 0
    sweeps.gate.unlink()
    sweeps.reached.unlink()
    engine = sweeps.start("workload=waits", "fleet.retries=0")
    sweeps.until_reached(engine)
    sweeps.cancel()
    engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 1
    sweeps.gate.touch()
    assert project.json("run", "-m", "workload=waits").trial["reused"]
    statuses = sorted(trial["status"] for trial in project.json("results").trials)
    assert statuses == ["interrupted", "ok"]


def test_a_point_that_its_task_refuses_leaves_what_this_machine_has_measured(
    sweeps: SlurmProject,
) -> None:
    project = sweeps.project
    project.add("good")
    assert project.json("run", "-m", "workload=good").code == 0
    code = "import kernloom.fleet.slurm.submission as s\ns.sha256_json = lambda value: 'other'"
    done = project.json(*sweeps.words("workload=good"), env=login(project, code))
    assert [trial["status"] for trial in done.trials] == ["refused"], done.stderr
    assert project.json("run", "-m", "workload=good").trial["reused"]


def test_a_controller_that_is_down_when_points_are_submitted_again_costs_no_try(
    sweeps: SlurmProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps.add_waiting("waits")
    down = sweeps.project.folder / "down"
    script = f'[ -e "{down}" ] && export SLURM_CONF="{sweeps.dead_config()}"'
    monkeypatch.setenv("PATH", sweeps.with_sbatch(script)["PATH"])
    engine = sweeps.project.start(*sweeps.words("workload=waits"), "fleet.retries=1")
    sweeps.until_reached(engine)
    down.touch()
    sweeps.cancel()
    refused = 0
    for line in engine.stderr or ():
        refused += "asking again" in line
        if refused == 2:
            break
    down.unlink()
    sweeps.gate.touch()
    out, err = engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 0, out + err
    assert sweeps.attempts() == 1


def test_points_that_slurm_refused_to_take_again_are_submitted_by_the_next_command(
    sweeps: SlurmProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps.add_waiting("waits")
    refuse = sweeps.project.folder / "refuse"
    script = f'[ -e "{refuse}" ] && set -- --constraint=nosuch "$@"'
    monkeypatch.setenv("PATH", sweeps.with_sbatch(script)["PATH"])
    words = ("workload=waits", "fleet.retries=1")
    engine = sweeps.start(*words)
    sweeps.until_reached(engine)
    refuse.touch()
    sweeps.cancel()
    _, err = engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 3, err
    assert "Slurm refuses the tasks" in err
    refuse.unlink()
    sweeps.gate.touch()
    done = sweeps.project.json(*sweeps.words(*words))
    assert [trial["status"] for trial in done.trials] == ["ok"], done.stderr


def test_a_kernel_that_is_hit_before_its_task_has_not_crashed(sweeps: SlurmProject) -> None:
    head = "#include <stdio.h>\n#include <unistd.h>"
    sweeps.project.add("hit", WAITS_FOR_SIGNAL.format(reached=sweeps.reached), head=head)
    engine = sweeps.start("workload=hit", "fleet.retries=0")
    sweeps.until_reached(engine)
    runner, supervisor = map(int, sweeps.reached.read_text().split())
    task = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    ended = os.pidfd_open(runner)
    os.kill(runner, signal.SIGTERM)
    assert select.select([ended], [], [], PATIENCE_S)[0]
    os.close(ended)
    os.kill(task, signal.SIGTERM)
    stdout, stderr = engine.communicate(timeout=PATIENCE_S)
    trials = json.loads(stdout)["trials"]
    assert [trial["status"] for trial in trials] == ["interrupted"], stdout + stderr


def test_the_password_of_a_store_is_in_no_file_of_a_submission(sweeps: SlurmProject) -> None:
    project = sweeps.project
    project.add("good")
    url = "postgresql+psycopg://me:S3CRET@nowhere.invalid/trials"
    project.write("configs/store/team.yaml", f"name: postgres\npath: null\nurl: {url}\n")
    root = (ENGINE.parent / "configs/kernloom.yaml").read_text(encoding="utf-8")
    project.write("configs/kernloom.yaml", root.replace("store: sqlite", "store: team"))
    words = [*sweeps.words("workload=good"), "store=sqlite"]
    killed = project.run(*words, env=login(project, KILLED_AT_CLOSE))
    assert killed.code == -9, killed.stderr
    assert len(sweeps.leftovers()) == 1
    assert files_with("S3CRET", project.folder / ".kernloom") == []
