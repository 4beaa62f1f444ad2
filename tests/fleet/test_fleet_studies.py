"""Studies whose points are measured by Slurm."""

from __future__ import annotations

import pytest
from slurm_project import SlurmProject

from command_line import KERNEL

pytestmark = pytest.mark.slow

BODY = """\
#if BY == 3
#error nobody wants three
#endif
for (volatile long wait = 0; wait < BY * 20000; wait++) {}
for (long i = 0; i < n; i++) y[i] = 2 * x[i];
"""
TUNABLES = "tunables: {unroll: {by: {values: [6, 5, 4, 3, 2, 1], 'off': 1}}}\n"
TUNE = (
    *("tune", "workload=slow", "fleet=slurm", "fleet.poll=0.2", "batch=3"),
    *("strategy=random", "leaders=2", "stages=1", "racing=quick"),
)


def test_a_study_on_slurm_finds_the_best_and_goes_on_from_what_is_stored(
    sweeps: SlurmProject,
) -> None:
    project = sweeps.project
    kernel = KERNEL.format(name="slow").replace(
        "function: slow", "function: slow, macros: {BY: by}"
    )
    project.add("slow", BODY, kernel=kernel + TUNABLES)
    done = project.json(*TUNE, "export=best.yaml")
    assert done.code == 0, done
    found = done.document
    assert found["study"]["evaluated"] == 6
    assert found["winner"]["params"] == {"unroll": {"call": {"by": 1}}}
    assert [one["status"] for one in found["failures"]] == ["build_failed"]
    assert all(one["verified"] for one in found["cases"])
    assert sweeps.leftovers() == []
    attempts = sweeps.attempts()
    again = project.json(*TUNE)
    assert again.code == 0, again
    assert again.document["study"]["known"] == 6
    assert again.document["winner"]["id"] == found["winner"]["id"]
    assert sweeps.attempts() == attempts
    file = project.json("plan", "workload=slow", "select.file=best.yaml")
    assert file.document["trials"][0]["params"]["unroll"]["call"]["by"] == 1
