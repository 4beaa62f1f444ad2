"""A build folder of its own for each test, real compilers, and small kernels."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from demo_kernel import make_source, shipped
from small_tree import ACCELERATOR, places_in, small_tree

from command_line import COMPILED
from kernloom.base.places import Places, share_folder
from kernloom.build.compile import kernel_artifact
from kernloom.build.runtimes import all_runtimes
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(share_folder(), None, tmp_path / "build", tmp_path / "store.db")


@pytest.fixture(scope="session")
def arch() -> Arch:
    return shipped(Arch, "arch", "x86_64_v2")


@pytest.fixture(scope="session", params=["gcc", "clang"])
def any_toolchain(request: pytest.FixtureRequest) -> Toolchain:
    toolchain = shipped(Toolchain, "toolchain", request.param)
    if not shutil.which(toolchain.tools["cc"]):
        pytest.skip(f"{request.param} is not installed")
    return toolchain


@pytest.fixture(scope="session")
def gcc() -> Toolchain:
    return shipped(Toolchain, "toolchain", "gcc")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def compiler_facts() -> Path:
    """A cache folder with the facts about this machine's compilers. It takes seconds to fill: the
    first process of the tests does so for all."""
    folder = Path(os.environ[COMPILED]) / "compiler-facts"
    with (folder.parent / "compiler-facts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            share = small_tree(folder.with_name("compiler-facts-tree"), ACCELERATOR)
            all_runtimes(places_in(share))
            places_in(share).cache.rename(folder)
    return folder


@pytest.fixture
def kernel(gcc: Toolchain, arch: Arch, cache: Path) -> Callable[..., Artifact]:
    """An artifact of the demo kernel; keywords change its source, the rest its compilation."""

    def make(
        *,
        toolchain: Toolchain = gcc,
        flags: tuple[str, ...] = (),
        variant: str = "release",
        **source: Any,
    ) -> Artifact:
        changed = replace(toolchain, extra_flags=flags)
        detected = detect(changed, cache)
        return kernel_artifact(make_source(**source), changed, arch, variant, detected)

    return make


@pytest.fixture
def wrapped(tmp_path: Path, gcc: Toolchain) -> Callable[..., Toolchain]:
    """gcc behind a script of one's own, as another compiler would be."""

    def make(script: str = 'exec gcc "$@"', name: str = "wrapped") -> Toolchain:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return replace(gcc, tools={"cc": str(path)})

    return make
