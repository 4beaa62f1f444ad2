"""The compilers of this machine."""

from __future__ import annotations

import shutil

import pytest

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
