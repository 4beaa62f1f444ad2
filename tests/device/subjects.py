"""Devices to test, each with the library of its test kernels."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def runner(self) -> Path:
        assert isinstance(self.device, HostDevice)
        return self.device.runner


def _compile(output: Path, sources: list[Path], *flags: str) -> Path:
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE / 'include'}"]
    subprocess.run(
        [*command, *flags, "-o", str(output), *map(str, sources), "-ldl", "-lpthread"], check=True
    )
    return output


def build(variant: str, folder: Path) -> Subject:
    flags = VARIANTS[variant]
    sources = sorted((NATIVE / "runner").glob("*.c"))
    runner = _compile(folder / "runner", sources, "-rdynamic", *flags)
    kernels = [Path(__file__).with_name("kernels.c")]
    # The kernels are wrong on purpose; the compiler must neither complain nor repair.
    wrong = ("-shared", "-fPIC", "-Wno-infinite-recursion", "-fno-sanitize=undefined", "-O0")
    library = _compile(folder / "kernels.so", kernels, *flags, *wrong)
    return Subject(HostDevice(runner), library)
