"""Projects of a user, for every test that runs the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres
from command_line import Project
from parts import needs_module

SLOW_FOLDERS = ("emulated", "firmware", "kernels", "opencl")
"""Where every test starts emulators or drivers, or compiles kernels by the hundred."""
SLOW_FILES = {
    "test_cli_calibrate.py",
    "test_cli_compare.py",
    "test_cli_faults_sweep.py",
    "test_cli_measure.py",
    "test_cli_progress.py",
    "test_cli_screening.py",
    "test_config_sweeps.py",
    "test_postgres.py",
}
"""Where every test runs whole sweeps or rounds, composes with Hydra again and again, or needs a
server."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS or item.path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def fresh_project(tmp_path: Path) -> Project:
    """A project in which nothing has ever been run."""
    return Project(tmp_path)


@pytest.fixture(scope="session")
def shared_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One project for all tests that leave it as they found it; its runner and axpy are built."""
    project = Project(tmp_path_factory.mktemp("shared"))
    project.add("good")
    done = project.run("run", "-m", "workload=axpy,good", "case=default")
    assert done.code == 0, done.stderr + done.stdout
    return project


@pytest.fixture
def project(tmp_path: Path, shared_project: Project) -> Project:
    """A project of the test's own that has a built runner and no results."""
    project = Project(tmp_path)
    project.take_runner_from(shared_project)
    return project


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    """A PostgreSQL server, stopped after the last test."""
    needs_module("psycopg")
    with postgres.postgres() as server:
        yield server
