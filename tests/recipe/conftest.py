"""One project in which recipes are written and read by the engine in this process."""

from __future__ import annotations

import pytest

from command_line import Project
from recipes import RecipeBench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> RecipeBench:
    return RecipeBench(Project(tmp_path_factory.mktemp("recipe")))
