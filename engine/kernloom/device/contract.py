"""The contract of every device: a device opens sessions; a session holds memory and runs kernels.

A missing feature is absent from the device's capabilities, and `require` refuses it by name before
anything starts. Every failed operation raises a DeviceError with the status of the trial.
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
from kernloom.config.schema import Arch, Experiment, Runtime, Target
from kernloom.device.messages import UNKNOWN_KINDS, Documents

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
    "unaligned": "tensors at any multiple of their element",
    "instructions": "exact instruction counts",
    "virtual_time": "deterministic virtual time",
    "mmu": "virtual addresses per processing element",
    "dma": "copies by a processing element's own engine",
    "flash": "programs in flash memory",
    "cold_cache": "samples that find nothing of their tensors in the caches",
    "realtime": "the real-time scheduling class, where the system permits it",
    "libraries": "shared libraries for kernels to call",
    "tasks": "orchestrations that submit tasks for processing elements",
    "transfers": "copies from and to the host inside the measured region",
    "variation": "tensors that change between the runs of a launch",
}
"""All capabilities that a device can declare."""


@dataclass(frozen=True)
class Buffer:
    """Memory of a device."""

    address: int
    nbytes: int
    label: str = ""


BUFFER = "buffer"
_COUNTED_BITS = 64
"""Arguments whose kinds a message can carry; one less, so that no kernel has all bits."""
Arguments: TypeAlias = int | Sequence[str]
"""The number of a kernel's arguments, or the kind of each: BUFFER, or a scalar's element type."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel library that a session has loaded."""

    handle: int
    path: Path
    arguments: int
    types: tuple[str, ...] = ()
    """Kind of each argument, if declared; a launch with other kinds is refused."""

    @classmethod
    def of(cls, handle: int, path: Path, arguments: Arguments) -> LoadedKernel:
        if isinstance(arguments, int):
            return cls(handle, path, arguments)
        return cls(handle, path, len(arguments), tuple(arguments))

    @property
    def buffers(self) -> int:
        """Bit i is set if argument i is a buffer."""
        if not self.types or self.arguments >= _COUNTED_BITS:
            return UNKNOWN_KINDS
        return sum(1 << place for place, kind in enumerate(self.types) if kind == BUFFER)


@dataclass(frozen=True)
class BufferRequest:
    """A buffer to allocate and its initial content: data, or one value for every byte."""

    nbytes: int
    label: str
    content: Data | int
    placement: Literal["", "shard", "owner", "replicate"] = ""
    """Where it is on a device with processing elements; default: as the device prefers."""


@dataclass(frozen=True)
class KernelRequest:
    """A kernel to load."""

    path: Path
    arguments: Arguments
    entry: str = "kl_entry"
    name: str = ""
    """Name for orchestrations, traces and messages; default: that of its file."""


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
    """One kernel call of a launch, or the whole launch of an orchestration."""

    kernel: LoadedKernel
    args: tuple[Buffer | Scalar, ...]
    submits: tuple[LoadedKernel, ...] = ()
    """Kernels that the tasks of an orchestration use, in its order; empty for a kernel."""


@dataclass(frozen=True)
class Transfer:
    """A tensor transfer between host and device, as one of the calls of a launch.

    A device with its own memory copies; the host's side is the buffer's content at the start of the
    launch. A device that reads in place is only notified.
    """

    buffer: Buffer
    direction: Literal["in", "out"]


@dataclass(frozen=True)
class LaunchSettings:
    """Repetitions of a launch's calls; all calls in order are one iteration."""

    warmup: int = 0
    """Untimed iterations before the first sample."""
    inner: int = 1
    """Iterations per sample; 0: enough for a sample to last `min_sample_ns`."""
    samples: int = 1
    min_sample_ns: int = 0
    cold: bool = False
    """Empty the caches of all buffers before every sample; `inner` is then 1."""
    realtime: bool = False
    """Use the real-time scheduling class if permitted; the result says whether it was used."""
    timeout: float | None = None
    """Time limit of the whole launch in seconds; default: the session's."""


@dataclass(frozen=True)
class VariedPiece:
    """Bytes of a tensor that change between the runs of a launch."""

    buffer: Buffer
    offset: int
    nbytes: int
    own: bytes = b""
    """Its content in the data set of the launch; empty: it is poisoned."""
    other: bytes = b""
    """Its content in another data set, for inputs; empty: its own content is restored."""


@dataclass(frozen=True)
class Variation:
    """How tensors change between the runs of a launch, and what is copied around one of them."""

    secret: int
    """64 bits from which the device draws when it changes what."""
    pieces: tuple[VariedPiece, ...]
    poisoned: tuple[Buffer, ...] = ()
    before: tuple[Buffer, ...] = ()
    """Copied before a run that is drawn,"""
    after: tuple[Buffer, ...] = ()
    """and after it."""


@dataclass(frozen=True)
class Views:
    """Read-only views of buffers, valid until the session's next operation."""

    end: Sequence[memoryview]
    """After the launch."""
    before: Sequence[memoryview] = ()
    """Before and after the run that was drawn; empty if they could not be kept."""
    after: Sequence[memoryview] = ()


@dataclass(frozen=True)
class LaunchResult:
    """Measurements of a launch: one entry per sample, each the total of `inner` iterations."""

    inner: int
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    involuntary: tuple[int, ...]
    voluntary: tuple[int, ...]
    readings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Name of each gauge of the device, except time -> its readings."""
    transfer_ns: tuple[int, ...] = ()
    """The part of `wall_ns` spent on transfers, for devices that have them."""
    cold: bool = False
    realtime: bool = False
    """Whether the samples were taken in the real-time scheduling class."""
    aslr: bool = True
    """Whether the process had randomized addresses."""
    others_ns: tuple[int, ...] = ()
    """CPU time that threads other than the kernel's own used during each sample."""
    varied: tuple[bool | None, ...] = ()
    """Whether inputs changed between the runs of each sample; None where one was proven."""
    elapsed_ns: int = 0
    """Duration of the launch by the engine's clock; 0: not taken."""
    delays_ns: int = 0
    """The part of it in which the engine waited for a core, or bytes were copied."""
    sandboxed: bool = False
    """Whether a filter of system calls surrounded the kernels."""
    report: Mapping[str, str] = field(default_factory=dict)
    """What the platform of an accelerator reports about the launch: limiter, utilisation, bytes by
    link. A runner reports `stride`, the runs between two changes of inputs; where the system tells
    for how long its thread waited for a core, `queued_ns` during samples and `delays_ns` since the
    launch before; and `left`, what kernels left running."""

    @property
    def instructions(self) -> tuple[float, ...]:
        return self.readings.get(INSTRUCTIONS.name, ())

    def per_run(self, gauge: Gauge) -> tuple[float, ...]:
        """A gauge's reading per iteration, for each sample."""
        found = self.readings.get(gauge.name)
        if found is None:
            raise DeviceError(f"the device gave no {gauge.name}", status="crashed")
        return tuple(_share(total, self.inner) for total in found)


def _share(total: float, parts: int) -> float:
    """Total divided by parts; a count stays an integer if it divides evenly."""
    if isinstance(total, int) and total % parts == 0:
        return total // parts
    return total / parts


class Session(ABC):
    """An open device. Leaving the `with` block closes it, whatever state it is in."""

    left_processes = False
    """Whether kernels had left processes when it was closed; they are ended."""

    @abstractmethod
    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        """Allocate exactly `nbytes` of memory; the label names it in messages."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None: ...

    @abstractmethod
    def write(self, buffer: Buffer, data: Data, offset: int = 0) -> None:
        """Copy the bytes of `data`, in C order, to `offset` of the buffer."""

    @abstractmethod
    def read(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0) -> bytearray:
        """Read `nbytes` (default: the rest) from `offset`; `numpy.frombuffer` makes an array of
        it."""

    @abstractmethod
    def fill(self, buffer: Buffer, value: int) -> None:
        """Set every byte of the buffer."""

    @abstractmethod
    def load(self, path: Path, arguments: Arguments, entry: str = "kl_entry") -> LoadedKernel:
        """Load a kernel library whose entry function takes these arguments."""

    @abstractmethod
    def launch(
        self, calls: Sequence[Call | Transfer], settings: LaunchSettings | None = None
    ) -> LaunchResult: ...

    def prepare(
        self, buffers: Sequence[BufferRequest], kernels: Sequence[KernelRequest]
    ) -> tuple[list[Buffer], list[LoadedKernel]]:
        """Allocate and fill buffers, and load kernels, as one batch. A device that is driven by
        messages need not wait for each response, so an error may be raised by the next
        operation."""
        made = []
        for wanted in buffers:
            made.append(self.allocate(wanted.nbytes, wanted.label))
            if isinstance(wanted.content, int):
                self.fill(made[-1], wanted.content)
            else:
                self.write(made[-1], wanted.content)
        return made, [self.load(item.path, item.arguments, item.entry) for item in kernels]

    def view(self, buffers: Sequence[Buffer]) -> list[memoryview]:
        """Read-only views of the buffers, without a copy where possible; valid until the next
        operation."""
        return [memoryview(self.read(buffer)) for buffer in buffers]

    def trace(self) -> bytes:
        """The trace of the session as Perfetto JSON; empty if the device records none."""
        return b""

    def document(self, document: Documents) -> bytes:
        """A document about the last launch as JSON; empty if the device has none."""
        return b""

    def launch_and_view(
        self,
        calls: Sequence[Call | Transfer],
        settings: LaunchSettings,
        buffers: Sequence[Buffer],
    ) -> tuple[LaunchResult, list[memoryview]]:
        """A launch, and views of the buffers after it."""
        return self.launch(calls, settings), self.view(buffers)

    def launch_varied(
        self,
        calls: Sequence[Call | Transfer],
        settings: LaunchSettings,
        variation: Variation,
        buffers: Sequence[Buffer],
    ) -> tuple[LaunchResult, Views]:
        """The same while tensors change; a device without `variation` changes nothing."""
        result, end = self.launch_and_view(calls, settings, buffers)
        return result, Views(end)

    def refill(self, contents: Sequence[tuple[Buffer, Data | int]]) -> None:
        """Write data, or one value for every byte, to each of the buffers."""
        for buffer, content in contents:
            if isinstance(content, int):
                self.fill(buffer, content)
            else:
                self.write(buffer, content)

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
class Look:
    """What is asked for of one run beside its results."""

    trace: bool = False
    level: int = 4
    """Of the trace; 0: as 1, for its digest only."""
    deps: bool = False
    replay: str = ""
    """Name or number of a task."""

    @classmethod
    def of(cls, experiment: Experiment) -> Look:
        return cls(
            experiment.trace is not None,
            experiment.trace_level,
            experiment.deps is not None,
            experiment.replay or "",
        )


@dataclass(frozen=True)
class DeviceSetup:
    """Inputs of `Device.from_setup`: the built programs, and settings from target and arch."""

    programs: Mapping[str, Path]
    """Role -> built file: runner, counter, platform."""
    target: Target
    arch: Arch
    runtime: Runtime | None = None
    """Settings of the task runtime, for devices that have one."""
    look: Look = Look()
    """What its sessions record of a run, for devices with virtual time."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of a simulated platform on top of the arch's, for what-if."""
    index: int = 0
    pin: int | None = None
    """The core to run on, for devices that use this machine's cores."""
    aslr: bool = True
    """False: the same addresses in every process, where the system permits it."""
    memory_limit: int = 0
    """Limit in bytes for the tensors of a session plus the memory that kernels allocate; 0: the
    machine's memory."""
    libraries: tuple[Path, ...] = ()
    """Shared libraries that kernels call, for devices with that capability."""
    sandbox: tuple[str, ...] | None = ()
    """Groups of system calls that kernels may make beside those that every kernel may; None: all,
    for devices whose kernels run in a process of this machine."""
    cache: Path | None = None
    """Cache folder for drivers; default: a temporary folder."""
    scratch: Path | None = None
    """Parent of the folders that kernels run in; default: the system's temporary folder."""


PLATFORM = "platform"
"""Role of an accelerator's platform: the program depends on the variant's machine."""


class Device(ABC):
    """Something that runs kernels."""

    programs: ClassVar[tuple[str, ...]] = ()
    """Roles of the programs to build for it: their names, or PLATFORM."""
    gauges: ClassVar[tuple[Gauge, ...]] = (TIME,)
    """The gauges it measures; a launch reports all of them as readings, except time, which has
    clocks."""
    runtimes: ClassVar[tuple[str, ...]] = ("none",)
    """The task runtimes that its programs can be built with."""

    @classmethod
    @abstractmethod
    def from_setup(cls, setup: DeviceSetup) -> Device:
        """The device for a target."""

    @classmethod  # noqa: B027 (most have nothing to check)
    def check(
        cls, target: Target, dtypes: Collection[str] = (), *, cache: Path | None = None
    ) -> None:
        """Raise UnavailableError if this machine lacks the target's device, ConfigError if the
        device lacks one of the element types. The detection may be cached in `cache`."""

    @classmethod  # noqa: B027
    def check_arch(cls, arch: Arch) -> None:
        """Raise ConfigError if the arch does not describe such a device."""

    @classmethod  # noqa: B027
    def check_options(cls, target: Target, arch: Arch) -> None:
        """Raise ConfigError if options of the target do not fit the arch."""

    @classmethod  # noqa: B027
    def check_tensors(cls, arch: Arch, nbytes: Mapping[str, int]) -> None:
        """Raise ConfigError if tensors of these sizes do not fit on the device together."""

    @classmethod
    def facts(cls, target: Target, *, cache: Path | None = None) -> dict[str, str]:
        """Facts that identify the target's device, beside the machine's class."""
        return {}

    @classmethod
    def reads_in_place(cls, target: Target, *, cache: Path | None = None) -> bool:
        """Whether kernels read a tensor in host memory in place, without a copy."""
        return target.family == "host"

    @classmethod
    def takes_host_tensors(cls, target: Target) -> bool:
        """Whether a tensor can be placed in host memory."""
        return target.family in ("host", "accelerator")

    @classmethod
    def injected_faults(cls, target: Target) -> str:
        """The faults that the target's options inject, as text; empty if there are none. Trials
        with such faults are not ranked."""
        return ""

    @classmethod
    def runs_cpu_code(cls, target: Target) -> bool:
        """Whether kernels are CPU code: then the machine or emulator must have the features of the
        arch, and the compiler must know them."""
        return target.family == "host"

    @classmethod
    def runs_natively(cls, target: Target) -> bool:
        """Whether kernels run on this machine's cores, as numpy does, so that its roof applies to
        them."""
        return False

    name: str
    """The name it is registered under."""
    arch: str
    index: int
    """Index among the devices of its class."""
    capabilities: frozenset[str]

    @property
    def identity(self) -> str:
        return f"{self.name}:{self.arch}:{self.index}"

    @abstractmethod
    def open(self, *, timeout: float = 60.0) -> Session:
        """Start a session; an operation that takes longer than `timeout` seconds ends the
        session."""


def require(device: Device, *capabilities: str) -> None:
    """Refuse, by name, the capabilities that the device lacks."""
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
    """Refuse, by name, a launch that no session of the device supports; returns its kernel
    calls."""
    if settings.cold:
        require(device, "cold_cache")
    elif settings.inner == 0:
        require(device, "calibrate")
    kernels = [call for call in calls if isinstance(call, Call)]
    if len(kernels) < len(calls):
        require(device, "transfers")
    if any(call.submits for call in kernels):
        require(device, "tasks")
        if len(calls) > 1:
            raise DeviceError(
                "an orchestration is launched alone", status="refused", code="unsupported"
            )
    for call in kernels:
        # The session itself reports a wrong number of arguments.
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
