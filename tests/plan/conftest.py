"""Workbenches: one over what ships, one over a small project, fresh ones on request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from workbench import TOY, Workbench, write


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return Workbench(tmp_path_factory.mktemp("shipped"))


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """The small project, for tests that change nothing in it; plan with workload=toy."""
    root = tmp_path_factory.mktemp("toy")
    write(root, TOY)
    return Workbench(root / "out", root)


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Workbench]:
    """A new workbench over the small project with some files changed."""

    def make(files: Mapping[str, str] | None = None) -> Workbench:
        root = tmp_path / "project"
        if not root.exists():
            write(root, TOY)
        write(root, files or {})
        return Workbench(tmp_path / "out", root)

    return make
