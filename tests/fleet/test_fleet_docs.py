"""The commands for a cluster that the documentation shows, on the cluster of the tests."""

from __future__ import annotations

import shlex

import pytest
from slurm_project import SlurmProject

from doc_pages import Shown, commands, files
from parts import needs_module

FOR_SLURM = [shown for shown in commands() if "slurm" in shown.text and " run " in shown.text]
PARTITION = "batch"
"""What the pages call the partition that the tests' cluster calls main."""


@pytest.mark.slow
@pytest.mark.parametrize("shown", [pytest.param(s, id=s.id) for s in FOR_SLURM])
def test_a_shown_command_does_what_the_page_says(sweeps: SlurmProject, shown: Shown) -> None:
    if "hydra/launcher" in shown.text:
        needs_module("hydra_plugins.hydra_submitit_launcher")
    words = shlex.split(shown.text.replace(f"={PARTITION}", "=main"))
    done = sweeps.project.run(*words[1:], *([] if "hydra" in shown.text else ["fleet.poll=0.2"]))
    assert done.code == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_fleet_of_the_page_sends_sweeps_to_its_partition(sweeps: SlurmProject) -> None:
    (text,) = files("docs/guide/fleets.md").values()
    ours = text.replace(f"partition: {PARTITION}", "partition: main")
    # Accounts and constraints are those of the cluster that the page imagines.
    lines = [line for line in ours.splitlines() if not line.startswith("options:")]
    sweeps.project.write("configs/fleet/ours.yaml", "\n".join(lines) + "\n")
    words = ("workload=axpy", "case=small,ragged", "fleet=ours", "fleet.poll=0.2")
    done = sweeps.project.json("run", "-m", *words)
    assert done.code == 0, done.stderr
    assert len(done.trials) == 2
