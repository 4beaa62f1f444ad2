"""On this machine: building and measuring may overlap, and measuring may be kept to one."""

from __future__ import annotations

import json
import signal

import pytest

from command_line import Project, in_group

pytestmark = pytest.mark.slow


def test_measuring_while_the_rest_is_built_gives_the_same_trials(project: Project) -> None:
    project.add("good")
    project.add("broken", "y[0] = x[0] + nothing; (void)n;")
    sweep = ["run", "-m", "workload=good,broken,axpy", "measure.together=1"]
    over = project.json(*sweep, "fleet.overlap=true", "fleet.exclusive=measuring")
    plain = project.json(*sweep, "rerun=all")
    assert [t["id"] for t in over.trials] == [t["id"] for t in plain.trials]
    assert [t["status"] for t in over.trials] == ["ok", "build_failed", "ok"]
    build = over.document["build"]
    assert (build["built"], build["failed"], build["cached"]) == (2, 1, 1)
    assert build["scons"] == 1


def test_everything_is_built_first_where_building_would_disturb(project: Project) -> None:
    words = ("run", "workload=matmul", "case=small", "fleet.overlap=true")
    done = project.run(*words, "select.fixed.parallelize.threads=2")
    assert done.code == 0, done
    assert "kernels of several threads are measured" in done.stderr


def test_an_interrupt_ends_the_compilers_and_keeps_what_was_measured(project: Project) -> None:
    project.add("good")
    sizes = ",".join(str(64 + number) for number in range(40))
    words = ("run", "-m", "workload=good", f"workload.sizes.n={sizes}", "output=jsonl")
    started = project.start(*words, "toolchain=gcc,clang", "fleet.overlap=true")
    assert started.stdout is not None
    first = json.loads(started.stdout.readline())
    started.send_signal(signal.SIGINT)
    started.communicate()
    assert started.returncode == 130
    assert in_group(started.pid) == []
    ids = {trial["id"] for trial in project.json("results").trials}
    assert first["id"] in ids
