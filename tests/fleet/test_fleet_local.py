"""On this machine: building and measuring may overlap, and measuring may be kept to one."""

from __future__ import annotations

import pytest

from command_line import Project

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
