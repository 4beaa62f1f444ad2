"""One set of real plans for all tests, and for each test a world of fakes to execute them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_parts import DEVICE, Engine, World, plan_project, register

from kernloom.device.devices import DEVICES
from kernloom.fleet import local
from kernloom.plan.planned import Planned
from kernloom.run.planning import MEASURING
from parts import needs


@pytest.fixture(scope="session")
def plan_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planned")


@pytest.fixture(scope="session")
def plans(plan_folder: Path) -> list[Planned]:
    """Plans of different trials that nobody changes."""
    needs("gcc")
    register(World())
    found = plan_project(plan_folder)
    DEVICES._known.pop(DEVICE)
    return found


@pytest.fixture(scope="session")
def plans_to_compare(plan_folder: Path, plans: list[Planned]) -> list[Planned]:
    """The same without the stage that measures: those who compare do that themselves."""
    register(World())
    found = plan_project(plan_folder, without=MEASURING)
    DEVICES._known.pop(DEVICE)
    return found


@pytest.fixture
def new_engine(plans: list[Planned], plan_folder: Path) -> Iterator[Callable[[], Engine]]:
    """Engines of worlds in which nothing has happened yet."""
    yield lambda: Engine(plan_folder, plans)
    DEVICES._known.pop(DEVICE, None)


@pytest.fixture
def engine(new_engine: Callable[[], Engine]) -> Engine:
    return new_engine()


@pytest.fixture
def several_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no core shared its execution units with another."""
    monkeypatch.setattr(local, "smt_siblings", lambda core: {core})
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
