"""Composers over the shipped configs, and over a project's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kernloom.config.compose import Composer, Point
from kernloom.places import share_folder

Compose = Callable[..., dict[str, Any]]


def arch_as_it_is(data: Mapping[str, Any]) -> dict[str, Any]:
    arch: dict[str, Any] = data["arch"]
    return arch


@pytest.fixture(scope="session")
def composer(tmp_path_factory: pytest.TempPathFactory) -> Composer:
    cache = tmp_path_factory.mktemp("composed")
    return Composer([share_folder() / "configs"], cache, arch_as_it_is)


@pytest.fixture(scope="session")
def compose(composer: Composer) -> Compose:
    """The resolved data of a single run."""

    def one(*words: str) -> dict[str, Any]:
        (point,) = composer.points(["arch=x86_64_v2", *words], multirun=False)
        return point.data

    return one


@pytest.fixture(scope="session")
def sweep(composer: Composer) -> Callable[..., list[Point]]:
    def points(*words: str) -> list[Point]:
        return list(composer.points(["arch=x86_64_v2", *words], multirun=True))

    return points


@pytest.fixture
def project(tmp_path: Path) -> Callable[[Mapping[str, str]], Composer]:
    """A composer that sees some files of a project's own first."""

    def make(files: Mapping[str, str]) -> Composer:
        for name, text in files.items():
            path = tmp_path / "configs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folders = [tmp_path / "configs", share_folder() / "configs"]
        return Composer(folders, tmp_path / "cache", arch_as_it_is)

    return make
