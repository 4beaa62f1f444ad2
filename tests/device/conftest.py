"""Every device of the contract suite, built once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from subjects import KINDS, Subject, build, devices

from kernloom.device.contract import Session


@pytest.fixture(scope="session")
def build_subject(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    built: dict[str, Subject] = {}

    def build_once(name: str) -> Subject:
        if name not in built:
            built[name] = build(name, tmp_path_factory.mktemp(name))
        return built[name]

    return build_once


@pytest.fixture(params=devices(KINDS.values()))
def subject(request: pytest.FixtureRequest, build_subject: Callable[[str], Subject]) -> Subject:
    """Every device there is, or those that a test is for, one after the other."""
    return build_subject(request.param)


@pytest.fixture
def session(subject: Subject) -> Iterator[Session]:
    with subject.device.open(timeout=30) as session:
        yield session


@pytest.fixture
def host(build_subject: Callable[[str], Subject]) -> Subject:
    return build_subject("host")


@pytest.fixture
def sanitized_host(build_subject: Callable[[str], Subject]) -> Subject:
    return build_subject("host-asan")
