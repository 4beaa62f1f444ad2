"""Devices to test: what each promises, how much it holds, and how kernels end on it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from building import (
    SANITIZED,
    build_accelerator,
    build_bare_metal,
    build_emulated,
    build_host,
    build_opencl,
)

import attacks
from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.contract import Device
from kernloom.device.embedded import EmbeddedDevice
from kernloom.device.emulated import EmulatedDevice
from kernloom.device.host import HostDevice
from kernloom.device.opencl.device import OpenClDevice
from parts import BARE_METAL

WILD = 0xDEAD0000
"""An address at which no device has memory."""
TASKS = ((0, 4), (1, 4), (7, 1), (7, 2), (2, 2), (1000, 3), (5, 8), (300, 300))
Crash = tuple[str, int | None]
"""A kernel that crashes, and its argument."""


@dataclass(frozen=True)
class Kind:
    """A device to test, and what can be asked of it: what does not apply to it is left empty."""

    name: str
    device_class: type[Device]
    build: Callable[[Path], tuple[Device, Path]]
    """Makes the device, and the library of its test kernels."""
    crashes: Mapping[Crash, str]
    """Kernel and argument -> how the message begins."""
    slow: bool = True

    counts: tuple[int, ...] = (1, 3, 17, 1021, 70001)
    """Elements of arrays."""
    large: int = 8 << 20
    """Bytes of a buffer that the device has room for, though not for many at once."""
    pieces: int = (64 << 20) + 4004
    """Bytes of a transfer, more than go at once where there is such a bound."""
    buffers: tuple[int, ...] = (1, 63, 64, 65, 4096, 4097, 3 << 20, 2 << 20, 5 << 20)
    """Bytes of buffers that are there together."""
    samples: int = 20_000
    answers: tuple[int, ...] = (1, 2, 3, 4, 5, 7, 15, 100)
    """Samples of launches whose answers differ in length."""
    lines: int = 400_000
    """As many as a kernel should not print."""

    victims: tuple[int, ...] = (1, 100, 4096, 6000, (2 << 20) + 100)
    """Bytes of buffers that a kernel writes outside of."""
    outside: tuple[int, ...] = (0, 3, 70, 5000)
    """How far behind and before them it does so."""
    reads: tuple[int, ...] = (128, 4096, -4096, 100_000)
    """Offsets from a buffer of 100 bytes at which a read is caught."""
    signals: tuple[str, ...] = ("SIGSEGV", "SIGFPE", "SIGILL", "SIGABRT", "SIGBUS", "SIGTERM")
    """Those a kernel can raise."""
    exits: tuple[int, ...] = (0, 3)
    """Codes that a kernel can leave with."""
    tasks: tuple[tuple[int, int], ...] = TASKS
    """Tasks and threads of kl_parallel."""

    def has(self, *capabilities: str) -> bool:
        return self.device_class.capabilities.issuperset(capabilities)

    @property
    def overruns(self) -> list[tuple[int, int]]:
        """Bytes of a buffer, and an offset outside of it: all on the host; elsewhere, where the
        same code checks, those next to the buffer and some others."""
        near, *others = (self._overruns(far) for far in self.outside)
        further = list(itertools.chain(*others))
        if self.name != "host" and not attacks.whole():
            further = random.Random(self.name).sample(further, 5)
        return near + further

    def _overruns(self, far: int) -> list[tuple[int, int]]:
        return [(n, offset) for n in self.victims for offset in (n + far, -1 - far)]


@dataclass(frozen=True)
class Subject:
    """A device under test."""

    kind: Kind
    device: Device
    library: Path
    """tests/device/kernels.c or kernels.cl, built for it."""

    @property
    def runner(self) -> Path:
        assert isinstance(self.device, HostDevice | EmulatedDevice)
        return self.device.runner


def build(name: str, folder: Path) -> Subject:
    kind = KINDS[name]
    return Subject(kind, *kind.build(folder))


SIGNALS: dict[Crash, str] = {
    ("write_to", 0): "SIGSEGV (Segmentation fault)",
    ("write_to", WILD): "SIGSEGV (Segmentation fault)",
    ("illegal", None): "SIGILL (Illegal instruction)",
    ("overflow_stack", None): "SIGSEGV (Segmentation fault)",
}
ARM_FAULTS: dict[Crash, str] = {
    ("write_to", 0): "MemManage (data access) for address 0x0 at instruction ",
    ("read_from", 0): "MemManage (data access) for address 0x0 at instruction ",
    ("write_to", WILD): "MemManage (data access) for address 0xdead0000",
    ("write_to", 0x40000000): "MemManage (data access) for address 0x40000000",
    ("read_from", 0x20400000): "MemManage (data access) for address 0x20400000",
    ("jump_to", 0x30000001): "MemManage (instruction fetch) at instruction 0x30000000",
    ("write_program", None): "MemManage (data access) for address ",
    ("divide", 0): "UsageFault (divide by zero) at instruction ",
    ("illegal", None): "UsageFault (undefined instruction) at instruction ",
    ("overflow_stack", None): "MemManage (stack overflow) for address 0x1ff",
}
RISCV_FAULTS: dict[Crash, str] = {
    ("write_to", 0): "store access fault for address 0x0 at instruction 0x80",
    ("read_from", 0): "load access fault for address 0x0 at instruction 0x80",
    ("write_to", WILD): "store access fault for address 0xdead0000",
    ("write_to", 0x10000000): "store access fault for address 0x10000000",
    ("jump_to", 0x30000000): "instruction access fault for address 0x30000000",
    ("write_program", None): "store access fault for address 0x80",
    ("illegal", None): "illegal instruction at instruction 0x80",
    ("overflow_stack", None): "store access fault (stack overflow) for address 0x803f",
}


def _host(name: str, *flags: str) -> Kind:
    crashes = SIGNALS | {("divide", 0): "SIGFPE (Floating point exception)"}
    return Kind(name, HostDevice, partial(build_host, flags), crashes, slow=False)


def _emulated(name: str, compiler: str, *emulator: str, **crashes: str) -> Kind:
    build = partial(build_emulated, name, compiler, emulator)
    ends = {(kernel, None): text for kernel, text in crashes.items()}
    return Kind(name, EmulatedDevice, build, SIGNALS | ends)


def _accelerator(name: str, *flags: str, runtime: str = "hostgraph", **settings: str) -> Kind:
    """Every byte beside a tensor is unmapped. Kernels have no threads."""
    return Kind(
        name,
        AcceleratorDevice,
        partial(build_accelerator, flags, settings, runtime),
        SIGNALS | {("divide", 0): "SIGFPE (Floating point exception)"},
        slow=bool(settings) or "-O1" not in flags,
        reads=(100, 128, 4096, -1, -4096, 100_000),
        tasks=(),
    )


def _emulated_accelerator(name: str, runtime: str, arch: str = "small") -> Kind:
    build = partial(
        build_accelerator,
        ("-O1",),
        {},
        runtime,
        compiler="riscv64-linux-gnu-gcc",
        emulator=("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"),
        arch=arch,
    )
    return Kind(name, AcceleratorDevice, build, SIGNALS, reads=(100, -1), samples=200, tasks=())


def _shipped_accelerator(arch: str) -> list[Kind]:
    """An accelerator of configs/arch, with the programs of the small ones, built once."""
    small = _accelerator(f"{arch}-sim", "-O1")
    sim = replace(small, build=partial(small.build, arch=arch), slow=True)
    return [sim, _emulated_accelerator(f"{arch}-qemu", "hostgraph", arch)]


def _bare_metal(name: str, faults: Mapping[Crash, str]) -> Kind:
    """It is booted for every sample, has little memory, and sees only what was written."""
    return Kind(
        name,
        EmbeddedDevice,
        partial(build_bare_metal, name),
        faults,
        large=3 << 20,
        pieces=(3 << 20) + 4004,
        buffers=(1, 63, 64, 65, 4096, 4097, 1 << 20, (2 << 20) - 1),
        samples=3,
        answers=(1, 2, 3, 4, 7),
        lines=10_000,
        outside=(0, 2, 30),
        reads=(),
    )


_ALL = (
    _host("host", "-O2"),
    _host("host-asan", "-O1", *SANITIZED),
    _emulated(
        *("aarch64", "aarch64-linux-gnu-gcc", "qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
        illegal="SIGTRAP (Trace/breakpoint trap)",
    ),
    _emulated(
        *("riscv64", "riscv64-linux-gnu-gcc", "qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")
    ),
    _emulated("x86_64", "gcc", "qemu-x86_64", "-cpu", "max"),
    *(
        _bare_metal(name, RISCV_FAULTS if name == "riscv_bare" else ARM_FAULTS)
        for name in BARE_METAL
    ),
    _accelerator("accelerator", "-O1"),
    _accelerator("accelerator-ringmap", "-O1", runtime="ringmap", threads="2"),
    _accelerator("accelerator-asan", "-O0", *SANITIZED),
    # Its programs take a minute to build.
    *(
        [_accelerator("accelerator-tsan", "-O0", "-fsanitize=thread", threads="2")]
        if attacks.whole()
        else []
    ),
    _emulated_accelerator("accelerator-riscv64", "ringmap"),
    *(kind for arch in ("a2a3", "a5", "mppa") for kind in _shipped_accelerator(arch)),
    # Its kernels cannot raise, exit or start threads, and get buffers instead of addresses.
    Kind(
        "opencl",
        OpenClDevice,
        build_opencl,
        SIGNALS,
        signals=(),
        exits=(),
        tasks=(),
    ),
)
KINDS = {kind.name: kind for kind in _ALL}


def having(*capabilities: str) -> pytest.MarkDecorator:
    """For the devices that promise all of these."""
    kinds = [kind for kind in KINDS.values() if kind.has(*capabilities)]
    return pytest.mark.parametrize("subject", devices(kinds), indirect=True)


def without(*capabilities: str) -> pytest.MarkDecorator:
    """For the devices that promise none of them."""
    kinds = [kind for kind in KINDS.values() if not any(map(kind.has, capabilities))]
    return pytest.mark.parametrize("subject", devices(kinds), indirect=True)


def with_each(argument: str, values: str, *capabilities: str) -> pytest.MarkDecorator:
    """For each of the values, by the name that Kind has for them, of each device."""
    return pytest.mark.parametrize(
        ("subject", argument),
        [
            _parameter(kind, value)
            for kind in KINDS.values()
            if kind.has(*capabilities)
            for value in getattr(kind, values)
        ],
        indirect=["subject"],
    )


def devices(kinds: Iterable[Kind]) -> list[Any]:
    return [_parameter(kind) for kind in kinds]


def _parameter(kind: Kind, *values: Any) -> Any:
    marks = [pytest.mark.slow] if kind.slow else []
    return pytest.param(
        kind.name, *values, marks=marks, id=" ".join([kind.name, *map(_shown, values)])
    )


def _shown(value: Any) -> str:
    parts = value if isinstance(value, tuple) else (value,)
    return ",".join(str(part) for part in parts if part is not None)
