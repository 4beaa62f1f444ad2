"""A session with a runner process, for every device whose kernels run in one."""

from __future__ import annotations

import contextlib
import struct
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kernloom.device import messages
from kernloom.device.connection import Connection
from kernloom.device.contract import (
    Arguments,
    Buffer,
    Call,
    Device,
    LaunchResult,
    LaunchSettings,
    LoadedKernel,
    Scalar,
    Session,
    Transfer,
    check_launch,
)
from kernloom.device.messages import (
    COPY_IN,
    COPY_OUT,
    Allocate,
    ArgumentKind,
    Clock,
    Close,
    Condition,
    Free,
    Hello,
    KernelLaunch,
    LaunchArgument,
    LaunchCall,
    Load,
    MemoryFill,
    MemoryRead,
    MemoryWrite,
    Message,
    MessageError,
    Response,
    Status,
)
from kernloom.device.process import ending
from kernloom.device.window import WindowPool
from kernloom.errors import DeviceError

if TYPE_CHECKING:
    from kernloom.device.contract import Data

CLOSE_SECONDS = 5.0
FOREVER = 1e8
"""Seconds that clocks can still count to."""
_TRIAL_STATUS = {
    Status.OUT_OF_MEMORY: "out_of_memory",
    Status.OUT_OF_BOUNDS: "out_of_bounds",
    # What the linker left open: a symbol that nobody defines.
    Status.LOAD_FAILED: "build_failed",
    Status.UNAVAILABLE: "unavailable",
}


# Whatever else a kernel reached out of bounds, nothing in that process can be trusted any more.
_FATAL = (Status.OUT_OF_BOUNDS, Status.UNAVAILABLE)


class RunnerSession(Session):
    """One runner process, which dies with the thread that opened it if nobody closes it."""

    def __init__(
        self,
        device: Device,
        command: Sequence[str],
        windows: WindowPool,
        timeout: float,
        *,
        counter: int | None = None,
        environment: Mapping[str, str] | None = None,
        data_limit: int = 0,
    ) -> None:
        """With a `counter`, the file that a counter of instructions writes to, launches are
        counted and not timed: what counts is an emulator, whose time means nothing. `data_limit`
        bounds what the process, not only its buffers, may take."""
        self._device = device
        self._timeout = timeout
        self._operations = 0
        self._requests = 0
        self._busy = False
        self._ended: DeviceError | None = None
        self._counted = counter is not None
        counted = [] if counter is None else [counter]
        self._connection = Connection(
            [*command, *(f"--counter={counter}" for counter in counted)],
            windows,
            counted,
            environment,
            data_limit,
        )
        # A session that is forgotten, or open when the engine exits, ends as well.
        self._finalizer = weakref.finalize(self, _end, self._connection)
        # Answered together with the first request, which saves a round trip.
        self._greeting = self._send(Hello(messages.VERSION), self._operation(), self._deadline())

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        response = self.exchange(Allocate(nbytes, label))
        return Buffer(response.value, nbytes, label)

    def free(self, buffer: Buffer) -> None:
        self.exchange(Free(buffer.address))

    def write(self, buffer: Buffer, data: Data, offset: int = 0) -> None:
        flat = _flat(data)
        _check_range(buffer, offset, len(flat))
        window = self._connection.window
        operation = self._operation()
        for start in range(0, len(flat), window.nbytes):
            piece = flat[start : start + window.nbytes]
            window.memory[: len(piece)] = piece
            address = buffer.address + offset + start
            self.exchange(MemoryWrite(address, 0, len(piece)), operation)

    def read(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0) -> bytearray:
        wanted = buffer.nbytes - offset if nbytes is None else nbytes
        _check_range(buffer, offset, wanted)
        window = self._connection.window
        operation = self._operation()
        result = bytearray(wanted)
        for start in range(0, wanted, window.nbytes):
            count = min(window.nbytes, wanted - start)
            self.exchange(MemoryRead(buffer.address + offset + start, 0, count), operation)
            with memoryview(window.memory) as view, view[:count] as piece:
                result[start : start + count] = piece
        return result

    def fill(self, buffer: Buffer, value: int) -> None:
        self.exchange(MemoryFill(buffer.address, buffer.nbytes, value))

    def load(self, path: Path, arguments: Arguments, entry: str = "kl_entry") -> LoadedKernel:
        loaded = LoadedKernel.of(0, path, arguments)
        response = self.exchange(Load(loaded.arguments, str(path), entry))
        return replace(loaded, handle=response.value)

    def launch(
        self, calls: Sequence[Call | Transfer], settings: LaunchSettings | None = None
    ) -> LaunchResult:
        how = settings or LaunchSettings()
        check_launch(self._device, calls, how)
        conditions = Condition.COLD if how.cold else Condition(0)
        if how.realtime and "realtime" in self._device.capabilities:
            conditions |= Condition.REALTIME
        response = self.exchange(
            KernelLaunch(
                warmup=how.warmup,
                samples=how.samples,
                inner=how.inner,
                min_sample_ns=how.min_sample_ns,
                clock=Clock(0) if self._counted else Clock.ALL,
                conditions=conditions,
                calls=tuple(_call(call) for call in calls),
                arguments=tuple(_argument(arg) for call in calls for arg in _arguments(call)),
            ),
            timeout=how.timeout,
        )
        samples = response.samples
        if self._counted:
            counts = tuple(sample.instructions for sample in samples)
            return LaunchResult(response.value, (), (), (), (), counts)
        return LaunchResult(
            inner=response.value,
            wall_ns=tuple(sample.wall_ns for sample in samples),
            cpu_ns=tuple(sample.cpu_ns for sample in samples),
            involuntary=tuple(sample.involuntary for sample in samples),
            voluntary=tuple(sample.voluntary for sample in samples),
            transfer_ns=tuple(sample.transfer_ns for sample in samples),
            cold=bool(response.conditions & Condition.COLD),
            realtime=bool(response.conditions & Condition.REALTIME),
            aslr=not response.conditions & Condition.FIXED_ADDRESSES,
        )

    def close(self) -> None:
        if self._ended is None:
            self._ended = DeviceError("the session is closed", status="refused", code="ended")
            # In the middle of a request nobody would read a farewell.
            if not self._busy:
                with contextlib.suppress(OSError, EOFError, MessageError):
                    deadline = time.monotonic() + CLOSE_SECONDS
                    self._send(Close(), self._operation(), deadline)
                    while True:
                        self._connection.receive(deadline)
        self._finalizer()

    def exchange(
        self, message: Message, operation: int | None = None, *, timeout: float | None = None
    ) -> Response:
        """Send one request and wait for its response; what is not OK is raised."""
        if self._ended is not None:
            raise DeviceError(
                f"the session has ended: {self._ended.message}",
                status=self._ended.status,
                stderr=self._ended.stderr,
                code="ended",
            )
        name = type(message).__name__
        deadline = self._deadline(timeout)
        self._busy = True
        try:
            request = self._send(message, operation or self._operation(), deadline)
            if self._greeting:
                self._check(self._receive(self._greeting, deadline))
                self._greeting = 0
            response = self._receive(request, deadline)
        except TimeoutError:
            self._fail(f"no answer to {name} within {timeout or self._timeout:g} s", "timeout")
        except (EOFError, ConnectionError):
            returncode = self._connection.end()
            if self._greeting:
                self._fail(f"the runner did not start: {self._last_words(returncode)}", "crashed")
            self._fail(f"{ending(returncode)} during {name}{self._sanitizer_said()}", "crashed")
        except MessageError as error:
            self._fail(f"the runner sent what is not a message: {error}", "crashed")
        except struct.error as error:
            self._busy = False
            raise DeviceError(
                f"{message} has a number that does not fit: {error}",
                status="refused",
                code="invalid",
            ) from None
        self._busy = False
        return self._check(response)

    def _operation(self) -> int:
        self._operations += 1
        return self._operations

    def _deadline(self, timeout: float | None = None) -> float:
        return time.monotonic() + min(self._timeout if timeout is None else timeout, FOREVER)

    def _send(self, message: Message, operation: int, deadline: float) -> int:
        self._requests += 1
        data = messages.pack(message, correlation=operation, request=self._requests)
        # A runner that is gone is noticed, and explained, where its answer is missing.
        with contextlib.suppress(ConnectionError):
            self._connection.send(data, deadline)
        return self._requests

    def _receive(self, request: int, deadline: float) -> Response:
        header, message = self._connection.receive(deadline)
        if not isinstance(message, Response) or header.request != request:
            raise MessageError(f"a {type(message).__name__} to request {header.request}")
        return message

    def _check(self, response: Response) -> Response:
        if response.status == Status.OK:
            return response
        try:
            status = Status(response.status)
        except ValueError:
            self._fail(f"the runner answered with status {response.status}", "crashed")
        launched = response.answers == KernelLaunch.KIND
        if status in _FATAL or (launched and status == Status.OUT_OF_MEMORY):
            self._fail(response.detail, _TRIAL_STATUS[status])
        raise DeviceError(
            response.detail,
            status=_TRIAL_STATUS.get(status, "refused"),
            code=status.name.lower(),
        )

    def _sanitizer_said(self) -> str:
        """The line in which a sanitizer sums up what it found, with file and line."""
        said = [
            line for line in self._connection.process.tail().splitlines() if "SUMMARY: " in line
        ]
        return f": {said[-1].partition('SUMMARY: ')[2]}" if said else ""

    def _last_words(self, returncode: int) -> str:
        lines = self._connection.process.tail().strip().splitlines()
        return f"{ending(returncode)}, {lines[-1]}" if lines else ending(returncode)

    def _fail(self, reason: str, status: str) -> NoReturn:
        """End the session for a reason that every later operation repeats."""
        self._connection.end()
        stderr = self._connection.process.tail()
        self._finalizer()
        self._ended = DeviceError(reason, status=status, stderr=stderr)
        raise self._ended from None


def _end(connection: Connection) -> None:
    connection.end()
    connection.process.release()


def _flat(data: Data) -> memoryview:
    view = memoryview(data)  # type: ignore[arg-type]  # numpy declares it from 3.12 on
    if view.nbytes == 0:
        return memoryview(b"")
    if view.c_contiguous:
        with contextlib.suppress(TypeError):
            return view.cast("B")
    # Not contiguous, or of an element type that a memoryview cannot recast.
    return memoryview(view.tobytes())


def _check_range(buffer: Buffer, offset: int, nbytes: int) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise DeviceError(
            f"{nbytes} bytes at offset {offset} are not inside buffer '{buffer.label}' "
            f"of {buffer.nbytes} bytes",
            status="refused",
            code="invalid",
        )


def _call(call: Call | Transfer) -> LaunchCall:
    if isinstance(call, Transfer):
        return LaunchCall(COPY_IN if call.direction == "in" else COPY_OUT, 1)
    return LaunchCall(call.kernel.handle, len(call.args))


def _arguments(call: Call | Transfer) -> tuple[Buffer | Scalar, ...]:
    return (call.buffer,) if isinstance(call, Transfer) else call.args


def _argument(value: Buffer | Scalar) -> LaunchArgument:
    if isinstance(value, Buffer):
        return LaunchArgument(ArgumentKind.BUFFER, value.address)
    return LaunchArgument(ArgumentKind.SCALAR, value.bits)
