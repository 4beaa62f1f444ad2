"""What every device promises: a device opens sessions; a session holds memory and runs kernels.

A device that lacks something does not list it in its capabilities, and `require` refuses it by name
before anything starts. Every failure of an operation is a DeviceError with the status of the trial.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from kernloom.base.errors import DeviceError, nearest
from kernloom.base.gauges import INSTRUCTIONS, TIME, Gauge
from kernloom.config.schema import Arch, Target

if TYPE_CHECKING:
    import numpy

    Data: TypeAlias = bytes | bytearray | memoryview | numpy.ndarray[Any, Any]

CAPABILITIES = {
    "memory": "buffers that can be written, read and filled",
    "launch": "kernels that can be loaded and launched",
    "calibrate": "finding the inner count of a sample by itself",
    "wall_clock": "wall time of every sample",
    "cpu_clock": "CPU time of the launching thread for every sample",
    "context_switches": "context switches during every sample",
    "threads": "kernels on several threads (kl_parallel)",
    "guards": "naming the buffer that a kernel overran",
    "instructions": "exact instruction counts",
    "virtual_time": "deterministic virtual time",
    "mmu": "virtual addresses per processing element",
    "dma": "copies by a processing element's own engine",
    "flash": "programs in flash memory",
    "cold_cache": "samples that find nothing of their tensors in the caches",
    "realtime": "the real-time scheduling class, where the system permits it",
    "libraries": "shared libraries for kernels to call",
    "transfers": "copies from and to the host inside the measured region",
}
"""Everything a device can be asked for."""


@dataclass(frozen=True)
class Buffer:
    """Memory of a device."""

    address: int
    nbytes: int
    label: str = ""


BUFFER = "buffer"
Arguments: TypeAlias = int | Sequence[str]
"""How many arguments a kernel takes, or what each is: BUFFER, or the element type of a scalar."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel library that a session has loaded."""

    handle: int
    path: Path
    arguments: int
    types: tuple[str, ...] = ()
    """What each is, where that was said; launches with anything else are refused."""

    @classmethod
    def of(cls, handle: int, path: Path, arguments: Arguments) -> LoadedKernel:
        if isinstance(arguments, int):
            return cls(handle, path, arguments)
        return cls(handle, path, len(arguments), tuple(arguments))


@dataclass(frozen=True)
class BufferRequest:
    """A buffer to allocate, and what goes into it: data, or one value for every byte."""

    nbytes: int
    label: str
    content: Data | int


@dataclass(frozen=True)
class KernelRequest:
    """A kernel to load."""

    path: Path
    arguments: Arguments
    entry: str = "kl_entry"


_SCALARS = {
    "float32": "<f",
    "float64": "<d",
    "int8": "<b",
    "uint8": "<B",
    "int32": "<i",
    "int64": "<q",
    "uint64": "<Q",
}


@dataclass(frozen=True)
class Scalar:
    """A number as a kernel's argument; the kernel sees it in the low bytes of eight."""

    value: int | float
    dtype: str = "int64"

    @property
    def bits(self) -> int:
        code = _SCALARS.get(self.dtype)
        if code is None:
            raise DeviceError(
                f"a kernel cannot take a scalar of type '{self.dtype}'. "
                + nearest(self.dtype, _SCALARS),
                status="refused",
            )
        try:
            value = float(self.value) if code in ("<f", "<d") else self.value
            return int.from_bytes(struct.pack(code, value), "little")
        except (struct.error, OverflowError):
            raise DeviceError(
                f"{self.value!r} does not fit a scalar of type {self.dtype}", status="refused"
            ) from None


@dataclass(frozen=True)
class Call:
    """One kernel call of a launch."""

    kernel: LoadedKernel
    args: tuple[Buffer | Scalar, ...]


@dataclass(frozen=True)
class Transfer:
    """A tensor handed from the host to the device or back, as one of the calls of a launch.

    Where the device has memory of its own, that is a copy, and the host's is what the buffer held
    when the launch began; a device that reads in place is only told.
    """

    buffer: Buffer
    direction: Literal["in", "out"]


@dataclass(frozen=True)
class LaunchSettings:
    """How often the calls of a launch are carried out; all calls in order are one iteration."""

    warmup: int = 0
    """Untimed iterations first."""
    inner: int = 1
    """Iterations per sample; 0: as many as make a sample last `min_sample_ns`."""
    samples: int = 1
    min_sample_ns: int = 0
    cold: bool = False
    """Empty the caches of all buffers before every sample; `inner` is then 1."""
    realtime: bool = False
    """Run in the real-time scheduling class if that is possible; the result says whether it was."""
    timeout: float | None = None
    """Seconds the whole launch may take; by default the session's."""


@dataclass(frozen=True)
class LaunchResult:
    """What a launch measured: one entry per sample, each the total of `inner` iterations."""

    inner: int
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    involuntary: tuple[int, ...]
    voluntary: tuple[int, ...]
    readings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Name of each gauge of the device but time -> what it shows."""
    transfer_ns: tuple[int, ...] = ()
    """The part of `wall_ns` that transfers took, from devices that have them."""
    cold: bool = False
    realtime: bool = False
    """Whether the samples were really taken in the real-time scheduling class."""
    aslr: bool = True
    """Whether the process got random addresses."""

    @property
    def instructions(self) -> tuple[float, ...]:
        return self.readings.get(INSTRUCTIONS.name, ())

    def per_run(self, gauge: Gauge) -> tuple[float, ...]:
        """What a gauge shows for one iteration, in each sample."""
        found = self.readings.get(gauge.name)
        if found is None:
            raise DeviceError(f"the device gave no {gauge.name}", status="crashed")
        return tuple(_share(total, self.inner) for total in found)


def _share(total: float, parts: int) -> float:
    """A part; of counts a count, where they can be divided."""
    if isinstance(total, int) and total % parts == 0:
        return total // parts
    return total / parts


class Session(ABC):
    """An open device. Leaving the `with` block closes it, whatever state it is in."""

    @abstractmethod
    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        """Memory of exactly `nbytes`; the label names it in messages."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None: ...

    @abstractmethod
    def write(self, buffer: Buffer, data: Data, offset: int = 0) -> None:
        """Copy the bytes of `data`, in C order, to `offset` of the buffer."""

    @abstractmethod
    def read(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0) -> bytearray:
        """`nbytes` (default: the rest) from `offset`; `numpy.frombuffer` makes it an array."""

    @abstractmethod
    def fill(self, buffer: Buffer, value: int) -> None:
        """Set every byte of the buffer."""

    @abstractmethod
    def load(self, path: Path, arguments: Arguments, entry: str = "kl_entry") -> LoadedKernel:
        """Load a kernel library whose function takes these arguments."""

    @abstractmethod
    def launch(
        self, calls: Sequence[Call | Transfer], settings: LaunchSettings | None = None
    ) -> LaunchResult: ...

    def prepare(
        self, buffers: Sequence[BufferRequest], kernels: Sequence[KernelRequest]
    ) -> tuple[list[Buffer], list[LoadedKernel]]:
        """Allocate and fill, and load, all of these. A device that is asked by message need not
        wait for each answer; what goes wrong with a content may be said by the next operation."""
        made = []
        for wanted in buffers:
            made.append(self.allocate(wanted.nbytes, wanted.label))
            if isinstance(wanted.content, int):
                self.fill(made[-1], wanted.content)
            else:
                self.write(made[-1], wanted.content)
        return made, [self.load(item.path, item.arguments, item.entry) for item in kernels]

    def look(self, buffers: Sequence[Buffer]) -> list[memoryview]:
        """What the buffers hold, without a copy where that can be: it is good to look at until the
        next operation, and not to be changed."""
        return [memoryview(self.read(buffer)) for buffer in buffers]

    def launch_and_look(
        self,
        calls: Sequence[Call | Transfer],
        settings: LaunchSettings,
        buffers: Sequence[Buffer],
    ) -> tuple[LaunchResult, list[memoryview]]:
        """A launch, and what the buffers hold after it."""
        return self.launch(calls, settings), self.look(buffers)

    @abstractmethod
    def close(self) -> None:
        """End the session and all it holds; safe at any time and more than once."""

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True)
class DeviceSetup:
    """What a device is made from: the programs built for it, and what target and arch say."""

    programs: Mapping[str, Path]
    """Role -> built file: runner, counter."""
    target: Target
    arch: Arch
    index: int = 0
    pin: int | None = None
    """The core its work should run on, where it runs on this machine's cores."""
    aslr: bool = True
    """False: the same addresses in each of its processes, where the system permits it."""
    memory_limit: int = 0
    """Bytes that the tensors of a session, and what kernels allocate beside them, may take;
    0: the machine's memory."""
    libraries: tuple[Path, ...] = ()
    """Shared libraries that kernels call, for devices with that capability."""
    cache: Path | None = None
    """Where a driver may keep what it derives; by default a temporary folder."""
    scratch: Path | None = None
    """Where the folders are that kernels run in; by default among the system's temporary files."""


class Device(ABC):
    """Something that runs kernels."""

    programs: ClassVar[tuple[str, ...]] = ()
    """Roles of the programs that must be built for it."""
    gauges: ClassVar[tuple[Gauge, ...]] = (TIME,)
    """What it measures; its launches have the readings of all but time, which has clocks."""

    @classmethod
    @abstractmethod
    def from_setup(cls, setup: DeviceSetup) -> Device:
        """The device for a target."""

    @classmethod  # noqa: B027 (most have nothing to check)
    def check(
        cls, target: Target, dtypes: Collection[str] = (), *, cache: Path | None = None
    ) -> None:
        """Raise UnavailableError if the target's device is not on this machine, ConfigError if it
        cannot do one of the element types. What was found may be remembered in `cache`."""

    @classmethod  # noqa: B027
    def check_tensors(cls, arch: Arch, nbytes: Mapping[str, int]) -> None:
        """Raise ConfigError if tensors of these sizes cannot be on the device together."""

    @classmethod
    def facts(cls, target: Target, *, cache: Path | None = None) -> dict[str, str]:
        """What beside the machine's class makes the target's device the one it is."""
        return {}

    @classmethod
    def reads_in_place(cls, target: Target, *, cache: Path | None = None) -> bool:
        """Whether kernels read a tensor of the host's memory where it is, and need no copy."""
        return target.family == "host"

    @classmethod
    def takes_host_tensors(cls, target: Target) -> bool:
        """Whether there is a host whose memory a tensor can be in."""
        return target.family in ("host", "accelerator")

    @classmethod
    def runs_cpu_code(cls, target: Target) -> bool:
        """Whether kernels are code for a CPU: this machine or its emulator must have the features
        of the arch, and the compiler must know them."""
        return target.family == "host"

    @classmethod
    def runs_natively(cls, target: Target) -> bool:
        """Whether kernels run on this machine's cores, as numpy does: its roof is theirs."""
        return False

    name: str
    """The name it is registered under."""
    arch: str
    index: int
    """Which of several devices of its class."""
    capabilities: frozenset[str]

    @property
    def identity(self) -> str:
        return f"{self.name}:{self.arch}:{self.index}"

    @abstractmethod
    def open(self, *, timeout: float = 60.0) -> Session:
        """Start a session; an operation that takes longer than `timeout` seconds ends it."""


def require(device: Device, *capabilities: str) -> None:
    """Refuse, by name, what the device cannot do."""
    for capability in capabilities:
        if capability not in device.capabilities:
            about = CAPABILITIES.get(capability)
            raise DeviceError(
                f"device '{device.name}' has no '{capability}'"
                + (f" ({about})" if about else "")
                + f". It has: {', '.join(sorted(device.capabilities))}.",
                status="refused",
                code="unsupported",
            )


def check_launch(
    device: Device, calls: Sequence[Call | Transfer], settings: LaunchSettings
) -> list[Call]:
    """Refuse, by name, what no session of the device can carry out; the calls of kernels."""
    if settings.cold:
        require(device, "cold_cache")
    elif settings.inner == 0:
        require(device, "calibrate")
    kernels = [call for call in calls if isinstance(call, Call)]
    if len(kernels) < len(calls):
        require(device, "transfers")
    for call in kernels:
        # A wrong number of arguments is the session's to name.
        for place, (wanted, given) in enumerate(zip(call.kernel.types, call.args, strict=False)):
            found = given.dtype if isinstance(given, Scalar) else BUFFER
            if found != wanted:
                raise DeviceError(
                    f"argument {place} of a kernel in {call.kernel.path.name} is {wanted}, "
                    f"and was given {found}",
                    status="refused",
                    code="wrong_argument_type",
                )
    return kernels
