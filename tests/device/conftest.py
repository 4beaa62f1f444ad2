"""The devices of the contract suite, each with the library of its test kernels."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from kernloom.device.contract import Device
from kernloom.device.host import HostDevice

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "native"
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
VARIANTS = {"host": ("-O2",), "host-asan": ("-O1", *SANITIZED)}


@dataclass(frozen=True)
class Subject:
    """A device under test."""

    device: Device
    library: Path
    """tests/device/kernels.c, built for it."""
    sanitized: bool


def _compile(output: Path, sources: list[Path], *flags: str) -> Path:
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE / 'include'}"]
    subprocess.run(
        [*command, *flags, "-o", str(output), *map(str, sources), "-ldl", "-lpthread"], check=True
    )
    return output


@pytest.fixture(scope="session")
def build_subject(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    built: dict[str, Subject] = {}

    def build(variant: str) -> Subject:
        if variant not in built:
            folder = tmp_path_factory.mktemp(variant)
            flags = VARIANTS[variant]
            sources = sorted((NATIVE / "runner").glob("*.c"))
            runner = _compile(folder / "runner", sources, "-rdynamic", *flags)
            kernels = [Path(__file__).with_name("kernels.c")]
            # The kernels are wrong on purpose; the compiler must neither complain nor repair.
            wrong = ("-shared", "-fPIC", "-Wno-infinite-recursion", "-fno-sanitize=undefined")
            library = _compile(folder / "kernels.so", kernels, *flags, *wrong, "-O0")
            built[variant] = Subject(HostDevice(runner), library, variant.endswith("-asan"))
        return built[variant]

    return build


@pytest.fixture(params=list(VARIANTS))
def subject(request: pytest.FixtureRequest, build_subject: Callable[[str], Subject]) -> Subject:
    """Every device there is, one after the other."""
    return build_subject(request.param)


@pytest.fixture
def host(build_subject: Callable[[str], Subject]) -> Subject:
    return build_subject("host")


@pytest.fixture
def sanitized_host(build_subject: Callable[[str], Subject]) -> Subject:
    return build_subject("host-asan")
