"""A project with scenes, which shares what it builds with other tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Project
from kernloom.base.places import find_places
from kernloom.run.assembly import Assembly

SCENE = """\
workload: good
cases:
  short: {sizes: {n: 8}, targets: [host]}
"""


@pytest.fixture(scope="package")
def scenery(tmp_path_factory: pytest.TempPathFactory, machine: Project) -> Project:
    """A project with a workload that is right and one that is wrong after 100 elements."""
    project = Project(tmp_path_factory.mktemp("scenery"))
    project.take_facts_from(machine)
    project.share_artifacts()
    project.add("good")
    project.add("late", "for (long i = 0; i < n; i++) y[i] = (i < 100 ? 2 : 3) * x[i];")
    return project


@pytest.fixture(scope="package")
def assembly(scenery: Project) -> Assembly:
    return Assembly(find_places(scenery.folder))


@pytest.fixture
def scene(scenery: Project, request: pytest.FixtureRequest) -> Path:
    """A YAML file of scenes/, removed after the test."""
    path = scenery.write("scenes/mine.yaml", SCENE)
    request.addfinalizer(lambda: path.unlink(missing_ok=True))
    return path
