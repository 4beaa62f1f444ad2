"""Devices to test, each with the library of its test kernels."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernloom.device.contract import Device
from kernloom.device.emulated import EmulatedDevice
from kernloom.device.host import HostDevice
from kernloom.device.opencl.choice import Options
from kernloom.device.opencl.device import OpenClDevice
from parts import needs, needs_opencl

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "native"
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
VARIANTS = {"host": ("-O2",), "host-asan": ("-O1", *SANITIZED)}
EMULATED = {
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
    "riscv64": ("riscv64-linux-gnu-gcc", "qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"),
    "x86_64": ("gcc", "qemu-x86_64", "-cpu", "max"),
}
"""Name -> compiler, emulator and its options."""
OPENCL = {
    "axpy": ("n:size:int64", "alpha:scalar:float32", "x:tensor:float32", "y:tensor:float32"),
    "count": ("counter:tensor:int64",),
    "twice": ("counter:tensor:int64",),
    "scalars": ("a:size:int64", "b:scalar:float32", "c:scalar:float64", "out:tensor:float64"),
    "write_at": ("offset:size:int64", "buffer:tensor:uint8"),
    "read_at": ("offset:size:int64", "buffer:tensor:uint8"),
    **dict.fromkeys(("write_null", "illegal", "hang", "chatter"), ()),
}
"""The kernels of kernels.cl with their arguments: name, kind and element type."""
# The kernels are wrong on purpose; the compiler must neither complain nor repair.
WRONG = ("-shared", "-fPIC", "-Wno-infinite-recursion", "-fno-sanitize=undefined", "-O0")
KERNELS = Path(__file__).with_name("kernels.c")


@dataclass(frozen=True)
class Subject:
    """A device under test."""

    device: Device
    library: Path
    """tests/device/kernels.c, built for it."""
    kernels: Collection[str] | None = None
    """Those it has; None: all."""

    @property
    def runner(self) -> Path:
        assert isinstance(self.device, HostDevice | EmulatedDevice)
        return self.device.runner

    @property
    def command(self) -> list[str]:
        """What starts its runner, alone."""
        if isinstance(self.device, OpenClDevice):
            pytest.skip("its worker needs more than a command")
        emulated = isinstance(self.device, EmulatedDevice)
        return [*(self.device.emulator if emulated else ()), str(self.runner)]


def compiled(output: Path, sources: list[Path], *flags: str, compiler: str = "gcc") -> Path:
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE / 'include'}"]
    subprocess.run(
        [*command, *flags, "-o", str(output), *map(str, sources), "-ldl", "-lpthread"], check=True
    )
    return output


def build(variant: str, folder: Path) -> Subject:
    sources = sorted((NATIVE / "runner").glob("*.c"))
    if variant in VARIANTS:
        flags = VARIANTS[variant]
        runner = compiled(folder / "runner", sources, "-rdynamic", *flags)
        library = compiled(folder / "kernels.so", [KERNELS], *flags, *WRONG)
        return Subject(HostDevice(runner), library)
    if variant == "opencl":
        return opencl(folder)
    compiler, emulator, *options = EMULATED[variant]
    needs(compiler, emulator)
    runner = compiled(folder / "runner", sources, "-rdynamic", "-O2", compiler=compiler)
    library = compiled(folder / "kernels.so", [KERNELS], *WRONG, compiler=compiler)
    counter = built_counter(folder)
    command = [str(shutil.which(emulator)), *options]
    return Subject(EmulatedDevice(command, runner, counter, arch=variant), library)


def opencl(folder: Path) -> Subject:
    needs_opencl()
    library = folder / "kernels.cl"
    library.write_text(KERNELS.with_suffix(".cl").read_text(encoding="utf-8"), encoding="utf-8")
    entries = {
        name: {
            "function": name,
            "arguments": [
                dict(zip(("name", "kind", "dtype"), argument.split(":"), strict=True))
                for argument in arguments
            ],
            "items": [1],
            "group": [1],
        }
        for name, arguments in OPENCL.items()
    }
    (folder / "launch.json").write_text(json.dumps({"entries": entries}), encoding="utf-8")
    return Subject(OpenClDevice(Options(), cache=folder / "cache"), library, OPENCL)


def built_counter(folder: Path) -> Path:
    sources = [NATIVE / "qemu" / "counter.c"]
    return compiled(folder / "counter.so", sources, "-O2", "-shared", "-fPIC")
