"""A real Slurm for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster import Cluster, cluster
from slurm_project import SlurmProject

from command_line import Project
from parts import needs_module


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_module("submitit")
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def sweeps(
    project: Project, slurm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmProject]:
    """A project whose sweeps go to Slurm; its tasks end with the test."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    made = SlurmProject(project, slurm)
    yield made
    made.end_tasks()
