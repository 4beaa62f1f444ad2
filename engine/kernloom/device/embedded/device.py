"""Bare-metal parts: kernels linked into a firmware that QEMU boots once for each launch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kernloom.base.errors import ConfigError, DeviceError
from kernloom.base.expressions import format_size
from kernloom.base.gauges import INSTRUCTIONS
from kernloom.config.schema import Arch
from kernloom.device.contract import (
    Arguments,
    Buffer,
    Call,
    Device,
    DeviceSetup,
    LaunchResult,
    LaunchSettings,
    LoadedKernel,
    Scalar,
    Session,
    Transfer,
    check_launch,
)
from kernloom.device.embedded import firmware
from kernloom.device.embedded.boot import boot_part
from kernloom.device.embedded.firmware import FirmwareCall, Image, Machine
from kernloom.device.embedded.memory import MemoryMap, PartMemory, memory_map, padded_bytes
from kernloom.device.emulator import emulator_command, emulator_said
from kernloom.device.process import ending

if TYPE_CHECKING:
    from kernloom.device.contract import Data

MOST_ITERATIONS = 1 << 32
MOST_SAMPLES = 10_000


class EmbeddedDevice(Device):
    """A part that runs one image at a time; each session has its own part.

    It has no clocks: instructions are counted, because an emulator's time means nothing.
    """

    name = "embedded"
    programs = ("counter", "supervisor")
    capabilities = frozenset({"memory", "launch", "guards", "unaligned", "instructions", "flash"})
    gauges = (INSTRUCTIONS,)

    def __init__(
        self,
        emulator: Sequence[str],
        counter: Path,
        supervisor: Path,
        *,
        arch: str,
        machine: Machine,
        memory: MemoryMap,
        index: int = 0,
        scratch: Path | None = None,
    ) -> None:
        self.emulator = tuple(emulator)
        """The emulator's path and options."""
        self.counter = counter
        self.supervisor = supervisor
        self.arch = arch
        self.machine = machine
        self.memory = memory
        self.index = index
        self.scratch = scratch
        """Parent of the folders that emulators run in; default: the system's temporary folder."""

    @classmethod
    def from_setup(cls, setup: DeviceSetup) -> EmbeddedDevice:
        return cls(
            emulator_command(setup.target),
            setup.programs["counter"],
            setup.programs["supervisor"],
            arch=setup.arch.name,
            machine=firmware.machine_of(setup.arch.isa),
            memory=memory_map(setup.arch),
            index=setup.index,
            scratch=setup.scratch,
        )

    @classmethod
    def check_tensors(cls, arch: Arch, nbytes: Mapping[str, int]) -> None:
        memory = memory_map(arch)
        needed = padded_bytes(nbytes.values())
        if needed > memory.tensors:
            largest = max(nbytes, key=lambda name: nbytes[name])
            raise ConfigError(
                f"the tensors need {format_size(needed)}, but of its {format_size(memory.ram)} of "
                f"RAM part '{arch.name}' has {format_size(memory.tensors)} for them",
                key="workload.sizes",
                hint=f"The largest is {largest} with {format_size(nbytes[largest])}: "
                "make it smaller.",
            )

    def open(self, *, timeout: float = 60.0) -> EmbeddedSession:
        return EmbeddedSession(self, timeout)


class EmbeddedSession(Session):
    """A mirror of the part's memory, and the images that can be flashed to the part."""

    def __init__(self, device: EmbeddedDevice, timeout: float) -> None:
        self._device = device
        self._timeout = timeout
        self._memory = PartMemory(
            device.memory.tensors_base, device.memory.tensors, part=device.arch
        )
        self._images: dict[Path, Image] = {}
        self._kernels: list[tuple[Image, int, int]] = []
        """Image, address and argument count of each kernel, by handle minus one."""
        self._flashed: Image | None = None
        self._ended: DeviceError | None = None

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        self._check_open()
        return self._memory.allocate(nbytes, label)

    def free(self, buffer: Buffer) -> None:
        self._check_open()
        self._memory.free(buffer)

    def write(self, buffer: Buffer, data: Data, offset: int = 0) -> None:
        self._check_open()
        view = memoryview(data)  # type: ignore[arg-type]  # numpy declares it from 3.12 on
        self._memory.write(buffer, memoryview(view.tobytes()), offset)

    def read(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0) -> bytearray:
        self._check_open()
        wanted = buffer.nbytes - offset if nbytes is None else nbytes
        return self._memory.read(buffer, wanted, offset)

    def fill(self, buffer: Buffer, value: int) -> None:
        self._check_open()
        self._memory.fill(buffer, value)

    def flash(self, image: Path) -> None:
        """Flash an image; a launch of a kernel from another image flashes that one by itself."""
        self._check_open()
        self._flashed = self._image(image)

    @property
    def flashed(self) -> Path | None:
        """The image on the part."""
        return self._flashed.path if self._flashed else None

    def load(self, path: Path, arguments: Arguments, entry: str = "kl_entry") -> LoadedKernel:
        """Load a function of a firmware image, and flash the image."""
        self.flash(path)
        image = self._image(path)
        if entry not in image.functions:
            raise DeviceError(
                f"{path} has no function '{entry}'", status="refused", code="load_failed"
            )
        loaded = LoadedKernel.of(len(self._kernels) + 1, path, arguments)
        if not 0 <= loaded.arguments <= firmware.MOST_ARGUMENTS:
            raise _invalid(f"a kernel takes 0 to {firmware.MOST_ARGUMENTS} arguments")
        self._kernels.append((image, image.functions[entry], loaded.arguments))
        return loaded

    def launch(
        self, calls: Sequence[Call | Transfer], settings: LaunchSettings | None = None
    ) -> LaunchResult:
        """Boots the part once per sample, or once per call if the calls are in several images.

        Memory carries over from one boot to the next; the firmware's variables do not.
        """
        self._check_open()
        how = settings or LaunchSettings()
        _check_settings(how)
        kernels = check_launch(self._device, calls, how)
        prepared = [self._prepared(call) for call in kernels]
        if not prepared:
            raise _invalid("a launch needs a call")
        seconds = self._timeout if how.timeout is None else how.timeout
        deadline = time.monotonic() + seconds
        counts = []
        try:
            if how.samples == 0 and how.warmup:
                self._iterations(prepared, how.warmup, 0, deadline)
            for sample in range(how.samples):
                warmup = how.warmup if sample == 0 else 0
                counts.append(self._iterations(prepared, warmup, how.inner, deadline))
        except TimeoutError:
            self._fail(f"no answer to KernelLaunch within {seconds:g} s", "timeout")
        except DeviceError as error:
            self._ended = error
            raise
        return LaunchResult(how.inner, (), (), (), (), {INSTRUCTIONS.name: tuple(counts)})

    def close(self) -> None:
        if self._ended is None:
            self._ended = DeviceError("the session is closed", status="refused", code="ended")

    def _check_open(self) -> None:
        if self._ended is not None:
            raise DeviceError(
                f"the session has ended: {self._ended.message}",
                status=self._ended.status,
                stderr=self._ended.stderr,
                code="ended",
            )

    def _fail(self, reason: str, status: str, stderr: str = "") -> NoReturn:
        self._ended = DeviceError(reason, status=status, stderr=stderr)
        raise self._ended from None

    def _image(self, path: Path) -> Image:
        if path not in self._images:
            device = self._device
            self._images[path] = firmware.read_image(path, device.arch, device.machine)
        return self._images[path]

    def _prepared(self, call: Call) -> tuple[Image, FirmwareCall]:
        handle = call.kernel.handle
        if not 1 <= handle <= len(self._kernels):
            raise DeviceError(
                f"no kernel has the handle {handle}", status="refused", code="unknown_kernel"
            )
        image, function, count = self._kernels[handle - 1]
        if len(call.args) != count:
            raise DeviceError(
                f"the kernel takes {count} arguments, not {len(call.args)}",
                status="refused",
                code="wrong_argument_count",
            )
        return image, FirmwareCall(function, tuple(self._argument(arg) for arg in call.args))

    def _argument(self, value: Buffer | Scalar) -> tuple[int, int]:
        if isinstance(value, Buffer):
            return firmware.BUFFER, self._memory.address(value)
        return firmware.SCALAR, value.bits

    def _iterations(
        self,
        calls: Sequence[tuple[Image, FirmwareCall]],
        warmup: int,
        inner: int,
        deadline: float,
    ) -> int:
        """Run the calls `warmup` and then `inner` times; returns the instructions of the latter."""
        images = {image.path: image for image, _ in calls}
        if len(images) == 1:
            (image,) = images.values()
            return self._boot(image, [call for _, call in calls], warmup, inner, deadline)
        total = 0
        for iteration in range(warmup + inner):
            counted = iteration >= warmup
            for image, call in calls:
                total += self._boot(image, [call], int(not counted), int(counted), deadline)
        return total

    def _boot(
        self,
        image: Image,
        calls: Sequence[FirmwareCall],
        warmup: int,
        inner: int,
        deadline: float,
    ) -> int:
        self._flashed = image
        before = self._memory.image()
        base = self._memory.base
        head = firmware.pack_launch(calls, warmup, inner, base, len(before))
        device = self._device
        launch = (head, before)
        boot = boot_part(
            device.emulator,
            device.counter,
            device.supervisor,
            image,
            launch,
            deadline,
            device.scratch,
        )
        report = boot.report
        if report is None:
            said = emulator_said(boot.stderr)
            why = f"{ending(boot.returncode)} of the emulator" + (f": {said}" if said else "")
            self._fail(why, "crashed", boot.stderr)
        if report.status == firmware.FAULT:
            self._fail(str(report), "crashed", boot.stderr)
        if report.status in (firmware.LEFT, firmware.SIGNAL):
            code = -report.code if report.status == firmware.SIGNAL else report.code
            self._fail(f"{ending(code)} during KernelLaunch", "crashed", boot.stderr)
        if report.status != firmware.DONE or len(boot.memory) != len(before):
            why = report.name or "its report is cut off"
            self._fail(f"the firmware refused the launch: {why}", "crashed", boot.stderr)
        self._memory.take(boot.memory)
        if boot.instructions is None:
            self._fail("the emulator left no count of instructions", "crashed", boot.stderr)
        return boot.instructions


def _check_settings(how: LaunchSettings) -> None:
    for name, value, most in (
        ("samples", how.samples, MOST_SAMPLES),
        ("inner", how.inner, MOST_ITERATIONS),
        ("warmup", how.warmup, MOST_ITERATIONS),
    ):
        if not 0 <= value <= most:
            raise _invalid(f"{name}={value} is not from 0 to {most}")


def _invalid(message: str) -> DeviceError:
    return DeviceError(message, status="refused", code="invalid")
