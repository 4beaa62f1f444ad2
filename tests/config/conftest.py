"""Composers over the shipped configs, and over a project's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kernloom.base.places import share_folder
from kernloom.config.compose import Composer, Point
from parsed import points_of

Compose = Callable[..., dict[str, Any]]

# Hydra as anybody would use it, in a process of its own: it holds global state.
_STOCK = """
import json, sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
with initialize_config_dir(config_dir=sys.argv[1], version_base="1.3"):
    for line in sys.stdin:
        try:
            config = compose("kernloom", overrides=json.loads(line))
            print(json.dumps(OmegaConf.to_container(config, resolve=True)), flush=True)
        except Exception as error:
            print(json.dumps({"refused": str(error)}), flush=True)
"""


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
        (point,) = points_of(composer, ["arch=x86_64_v2", *words], multirun=False)
        return point.data

    return one


@pytest.fixture(scope="session")
def sweep(composer: Composer) -> Callable[..., list[Point]]:
    def points(*words: str) -> list[Point]:
        return list(points_of(composer, ["arch=x86_64_v2", *words], multirun=True))

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


@pytest.fixture(scope="session")
def stock() -> Iterator[Compose]:
    with subprocess.Popen(
        [sys.executable, "-c", _STOCK, str(share_folder() / "configs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout

        def composed(*words: str) -> dict[str, Any]:
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(words) + "\n")
            process.stdin.flush()
            data: dict[str, Any] = json.loads(process.stdout.readline())
            return data

        yield composed
        process.stdin.close()
