"""Every bare-metal part, its image built once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from firmware_parts import PARTS, Part, build

from kernloom.device.embedded import EmbeddedSession


@pytest.fixture(scope="session")
def build_part(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Part]:
    built: dict[str, Part] = {}

    def build_once(name: str) -> Part:
        if name not in built:
            built[name] = build(name, tmp_path_factory.mktemp(name))
        return built[name]

    return build_once


@pytest.fixture(params=PARTS)
def part(request: pytest.FixtureRequest, build_part: Callable[[str], Part]) -> Part:
    """Every part there is, one after the other."""
    return build_part(request.param)


@pytest.fixture
def session(part: Part) -> Iterator[EmbeddedSession]:
    with part.device.open(timeout=30) as session:
        yield session
