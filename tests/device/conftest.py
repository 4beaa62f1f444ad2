"""Every device of the contract suite, built once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from subjects import EMULATED, VARIANTS, Subject, build


@pytest.fixture(scope="session")
def build_subject(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    built: dict[str, Subject] = {}

    def build_once(variant: str) -> Subject:
        if variant not in built:
            built[variant] = build(variant, tmp_path_factory.mktemp(variant))
        return built[variant]

    return build_once


@pytest.fixture(params=[*VARIANTS, *EMULATED, "opencl"])
def subject(request: pytest.FixtureRequest, build_subject: Callable[[str], Subject]) -> Subject:
    """Every device there is, one after the other."""
    return build_subject(request.param)


@pytest.fixture
def host(build_subject: Callable[[str], Subject]) -> Subject:
    return build_subject("host")


@pytest.fixture
def sanitized_host(build_subject: Callable[[str], Subject]) -> Subject:
    return build_subject("host-asan")
