"""A sweep on Slurm gives the trials that this machine would give, whatever gets lost on the way."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from slurm_project import SlurmProject

from command_line import DOUBLE, PATIENCE_S, Project

pytestmark = pytest.mark.slow

FAULTS = {
    "segv": "(void)n; (void)x; (void)y; *(volatile int *)8 = 1;",
    "wrong": "for (long i = 0; i < n; i++) y[i] = 3 * x[i];",
    "broken": "y[0] = x[0] + nothing; (void)n;",
}


def essence(trials: list[dict[str, Any]]) -> list[Any]:
    """What does not change from measurement to measurement."""
    keys = ("id", "workload", "case", "target", "point", "params", "provider", "status", "stage")
    return [[*(t[key] for key in keys), [a["key"] for a in t["artifacts"]]] for t in trials]


def finish(engine: Any) -> tuple[str, str]:
    out, err = engine.communicate(timeout=PATIENCE_S)
    return out, err


def test_the_same_sweep_gives_the_same_trials_as_on_this_machine(sweeps: SlurmProject) -> None:
    project = sweeps.project
    project.add("good")
    for name, body in FAULTS.items():
        project.add(name, body)
    sweep = [f"workload=good,{','.join(FAULTS)}", "workload.sizes.n=100,200"]
    away = project.json(*sweeps.words(*sweep), "fleet.chunk=3")
    local = project.json("run", "-m", *sweep, "rerun=all")
    assert (away.code, local.code) == (1, 1), away.stderr + local.stderr
    assert essence(away.trials) == essence(local.trials)
    statuses = [trial["status"] for trial in away.trials]
    assert statuses == [s for s in ("ok", "crashed", "wrong", "build_failed") for _ in range(2)]
    assert away.document["build"]["built"] > 0
    assert sweeps.leftovers() == []


def test_what_slurm_measured_is_not_measured_again_nor_taken_for_the_login_nodes(
    sweeps: SlurmProject,
) -> None:
    project = sweeps.project
    project.add("good")
    assert project.json("run", "-m", "workload=good").code == 0
    plan = ["plan", *sweeps.words("workload=good")[1:]]
    assert project.json(*plan).document["summary"]["stored"] == 0
    first = project.json(*sweeps.words("workload=good"))
    assert first.code == 0
    assert sweeps.attempts() == 2, "a trial of the login node stood in for one of the nodes"
    assert project.json(*plan).document["summary"]["stored"] == 1
    again = project.json(*sweeps.words("workload=good"))
    assert again.code == 0
    assert sweeps.attempts() == 2
    assert project.json(*sweeps.words("workload=good"), "rerun=all").code == 0
    assert sweeps.attempts() == 3


def test_a_task_finds_the_folders_of_the_search_path(sweeps: SlurmProject) -> None:
    project = sweeps.project
    project.add("good")
    project.write("lab/toolchain/mine.yaml", "defaults: [gcc, _self_]\nflags: [-O1]\n")
    words = [*sweeps.words("workload=good", "toolchain=mine"), "hydra.searchpath=[lab]"]
    done = project.json(*words)
    assert done.code == 0, done.stderr
    (trial,) = project.json("results").trials
    assert trial["config"]["toolchain"]["flags"] == ["-O1"]


def test_the_first_task_that_needs_an_artifact_can_build_it(sweeps: SlurmProject) -> None:
    sweeps.project.add("good")
    sweeps.project.add("broken", FAULTS["broken"])
    done = sweeps.project.json(*sweeps.words("workload=good,broken"), "fleet.build=first")
    assert [trial["status"] for trial in done.trials] == ["ok", "build_failed"], done.stderr
    assert done.document["build"]["built"] >= 1


def test_a_cancelled_task_is_submitted_again_with_what_it_had_not_finished(
    sweeps: SlurmProject,
) -> None:
    sweeps.project.add("good")
    sweeps.add_waiting("waits")
    engine = sweeps.start("workload=good,waits", "fleet.chunk=2")
    sweeps.until_reached(engine)
    (first,) = sweeps.names()
    sweeps.cancel()
    sweeps.until(lambda: any(name != first for name in sweeps.names()), engine)
    sweeps.gate.touch()
    out, err = finish(engine)
    assert engine.returncode == 0, out + err
    assert sweeps.attempts() == 2
    assert sweeps.leftovers() == []


def test_points_of_tasks_that_are_lost_too_often_are_interrupted(sweeps: SlurmProject) -> None:
    sweeps.project.add("good")
    sweeps.add_waiting("waits")
    engine = sweeps.start("workload=good,waits", "fleet.retries=0")
    sweeps.until_reached(engine)
    sweeps.cancel()
    out, err = finish(engine)
    assert engine.returncode == 1, out + err
    listed = {t["workload"]: t for t in sweeps.project.json("results").trials}
    assert listed["good"]["status"] == "ok"
    assert listed["waits"]["status"] == "interrupted"
    assert "ended once without finishing it" in listed["waits"]["message"]
    sweeps.gate.touch()
    done = sweeps.project.json(*sweeps.words("workload=good,waits"))
    assert done.code == 0
    assert sweeps.attempts() == 3, "only what was missing is measured"


def test_an_engine_that_is_killed_is_replaced_by_the_same_command(sweeps: SlurmProject) -> None:
    sweeps.project.add("good")
    sweeps.add_waiting("waits")
    words = ("workload=good,waits", "fleet.chunk=1", "fleet.exclusive=none")
    engine = sweeps.start(*words)
    sweeps.until_reached(engine)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=PATIENCE_S)
    names = sweeps.names()
    assert len(names) == 1, "the tasks go on"
    second = sweeps.project.start(*sweeps.words(*words))
    sweeps.until(lambda: sweeps.attempts() == 1, second)
    assert sweeps.names() == names, "nothing is submitted twice"
    sweeps.gate.touch()
    out, err = finish(second)
    assert second.returncode == 0, out + err
    assert "going on with the submission" in err
    assert sweeps.attempts() == 2


def test_ctrl_c_leaves_the_tasks_running_and_says_how_to_go_on(sweeps: SlurmProject) -> None:
    sweeps.add_waiting("waits")
    engine = sweeps.start("workload=waits")
    sweeps.until_reached(engine)
    engine.send_signal(signal.SIGINT)
    _, err = finish(engine)
    assert engine.returncode == 130
    (name,) = sweeps.names()
    assert f"scancel --name={name}" in err
    sweeps.gate.touch()
    done = sweeps.project.json(*sweeps.words("workload=waits"))
    assert done.code == 0
    assert sweeps.attempts() == 1


def test_two_engines_with_the_same_sweep_submit_it_once(sweeps: SlurmProject) -> None:
    sweeps.add_waiting("waits")
    first = sweeps.start("workload=waits")
    sweeps.until_reached(first)
    second = sweeps.project.start(*sweeps.words("workload=waits"))
    line = second.stderr.readline() if second.stderr else ""
    assert "another kernloom looks after this sweep" in line
    sweeps.gate.touch()
    finish(first)
    out, err = finish(second)
    assert (first.returncode, second.returncode) == (0, 0), out + err
    assert sweeps.attempts() == 1


def test_never_two_measure_on_a_node_at_once(sweeps: SlurmProject) -> None:
    project = sweeps.project
    inside, met = project.folder / "inside", project.folder / "met"
    body = (
        f'int mine = open("{inside}", O_CREAT | O_EXCL | O_WRONLY, 0600);'
        f'if (mine < 0) close(open("{met}", O_CREAT | O_WRONLY, 0600));'
        f"else {{ for (volatile int i = 0; i < 300000; i++); "
        f'close(mine); unlink("{inside}"); }} {DOUBLE}'
    )
    project.add("shy", body, head="#include <fcntl.h>\n#include <unistd.h>")
    sizes = "workload.sizes.n=100,200,300,400"
    done = project.json(
        *sweeps.words("workload=shy", sizes), "fleet.chunk=1", "fleet.exclusive=measuring"
    )
    assert done.code == 0, done.stderr
    assert not met.exists()


def test_an_unknown_partition_is_refused_before_anything_is_built(
    sweeps: SlurmProject,
) -> None:
    done = sweeps.project.run(*sweeps.words("workload=axpy"), "fleet.partition=spar")
    assert done.code == 3
    assert "no partition 'spar'" in done.stderr
    assert "Did you mean 'spare'?" in done.stderr
    assert not (sweeps.project.build / "kernels").exists()


def test_what_sbatch_refuses_is_said_in_its_words(sweeps: SlurmProject) -> None:
    words = sweeps.words("workload=axpy", "+fleet.options.constraint=nosuch")
    done = sweeps.project.run(*words)
    assert done.code == 3, done.stderr
    assert "Slurm refuses the tasks" in done.stderr
    assert "Traceback" not in done.stderr
    assert sweeps.leftovers() == []


def test_a_controller_that_is_down_is_said(project: Project, sweeps: SlurmProject) -> None:
    dead = {"SLURM_CONF": str(sweeps.dead_config())}
    done = project.run(*sweeps.words("workload=axpy"), env=dead)
    assert done.code == 3, done.stderr
    assert "Slurm does not answer" in done.stderr
