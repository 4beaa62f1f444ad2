"""A session with a runner process, for all devices that run kernels in one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernloom.base.errors import DeviceError
from kernloom.base.gauges import INSTRUCTIONS
from kernloom.device.connection import Connection
from kernloom.device.contract import (
    Arguments,
    Buffer,
    BufferRequest,
    Call,
    Device,
    KernelRequest,
    LaunchResult,
    LaunchSettings,
    LoadedKernel,
    Scalar,
    Transfer,
    Variation,
    VariedPiece,
    Views,
    check_launch,
)
from kernloom.device.conversation import Conversation
from kernloom.device.emulator import emulator_said
from kernloom.device.messages import (
    COPY_IN,
    COPY_OUT,
    Allocate,
    ArgumentKind,
    Change,
    Changes,
    Clock,
    Condition,
    Free,
    KernelLaunch,
    LaunchArgument,
    LaunchCall,
    Load,
    MemoryFill,
    MemoryRead,
    MemoryWrite,
    Message,
    Moment,
    Piece,
    Response,
    Snapshot,
    Span,
    Vary,
)
from kernloom.device.scratch import Scratch
from kernloom.device.window import WindowPool

if TYPE_CHECKING:
    from kernloom.device.contract import Data

LINE = 64
"""Contents of the window are aligned to cache lines."""
OWN_BYTES = 64 << 20
"""Memory of the runner itself on top of a memory limit,"""
SCHEDULE = Path("/proc/thread-self/schedstat")
SLOWEST_COPY = 0.5
"""Bytes per nanosecond of the slowest copy of tensors, page faults included."""
THREAD_BYTES = 16 << 20
"""and of each thread it may start."""


def data_limit(memory_limit: int, own: int = OWN_BYTES) -> int:
    """Memory limit of a runner's process; 0: unlimited."""
    return memory_limit + own + (os.cpu_count() or 1) * THREAD_BYTES if memory_limit else 0


class RunnerSession(Conversation):
    """One runner process; if not closed, it dies with the thread that opened it."""

    def __init__(
        self,
        device: Device,
        command: Sequence[str],
        windows: WindowPool,
        timeout: float,
        scratch: Scratch | None = None,
        *,
        counter: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """With `counter`, the file that an instruction counter writes to, launches are counted and
        not timed, because an emulator's time means nothing. The session owns `scratch` from here
        on."""
        self._device = device
        self._counted = counter is not None
        counted = [] if counter is None else [counter]
        super().__init__(
            Connection(
                [*command, *(f"--counter={counter}" for counter in counted)],
                windows,
                scratch or Scratch(),
                counted,
                environment,
            ),
            timeout,
        )

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
        self._settle()
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

    def prepare(
        self, buffers: Sequence[BufferRequest], kernels: Sequence[KernelRequest]
    ) -> tuple[list[Buffer], list[LoadedKernel]]:
        wanted = [LoadedKernel.of(0, item.path, item.arguments) for item in kernels]
        answers = self.exchange_all(
            [
                *(Allocate(item.nbytes, item.label) for item in buffers),
                *(
                    _load(kernel, item.entry, item.name)
                    for kernel, item in zip(wanted, kernels, strict=True)
                ),
            ]
        )
        made = [
            Buffer(answer.value, item.nbytes, item.label)
            for answer, item in zip(answers, buffers, strict=False)
        ]
        self._put([(buffer, item.content) for buffer, item in zip(made, buffers, strict=True)])
        handles = [answer.value for answer in answers[len(made) :]]
        named = zip(handles, kernels, strict=True)
        self._names |= {handle: item.name for handle, item in named if item.name}
        return made, [replace(k, handle=h) for k, h in zip(wanted, handles, strict=True)]

    def _put(self, contents: Sequence[tuple[Buffer, Data | int]]) -> None:
        """Fill buffers without waiting for responses, as far as the window has room."""
        window = self._connection.window
        batch: list[Message] = []
        places: list[tuple[int, memoryview]] = []
        end = 0
        for buffer, content in contents:
            if isinstance(content, int):
                batch.append(MemoryFill(buffer.address, buffer.nbytes, content))
                continue
            flat = _flat(content)
            if end + len(flat) > window.nbytes:
                self.write(buffer, flat)
                continue
            _check_range(buffer, 0, len(flat))
            batch.append(MemoryWrite(buffer.address, end, len(flat)))
            places.append((end, flat))
            end = _after(end + len(flat))
        # Only now: contents larger than the window have been written through it.
        for place, flat in places:
            window.memory[place : place + len(flat)] = flat
        self._post(batch)

    def refill(self, contents: Sequence[tuple[Buffer, Data | int]]) -> None:
        # Nothing that was posted may still refer to the window.
        self._settle()
        self._put(contents)

    def view(self, buffers: Sequence[Buffer]) -> list[memoryview]:
        reads = self._reads(buffers)
        if reads is None:
            return super().view(buffers)
        self.exchange_all(reads)
        return self._views(reads)

    def _reads(self, buffers: Sequence[Buffer]) -> list[MemoryRead] | None:
        """Requests that read the buffers into the window side by side, or None if it is too
        small."""
        reads = []
        end = 0
        for buffer in buffers:
            reads.append(MemoryRead(buffer.address, end, buffer.nbytes))
            end = _after(end + buffer.nbytes)
        return reads if end <= self._connection.window.nbytes else None

    def _views(self, reads: Sequence[MemoryRead | Snapshot]) -> list[memoryview]:
        whole = memoryview(self._connection.window.memory).toreadonly()
        return [whole[read.offset : read.offset + read.bytes] for read in reads]

    def fill(self, buffer: Buffer, value: int) -> None:
        self.exchange(MemoryFill(buffer.address, buffer.nbytes, value))

    def load(self, path: Path, arguments: Arguments, entry: str = "kl_entry") -> LoadedKernel:
        loaded = LoadedKernel.of(0, path, arguments)
        response = self.exchange(_load(loaded, entry))
        return replace(loaded, handle=response.value)

    def launch(
        self, calls: Sequence[Call | Transfer], settings: LaunchSettings | None = None
    ) -> LaunchResult:
        how = settings or LaunchSettings()
        response = self.exchange(self._launch(calls, how), timeout=how.timeout)
        return self._result(response)

    def launch_and_view(
        self,
        calls: Sequence[Call | Transfer],
        settings: LaunchSettings,
        buffers: Sequence[Buffer],
    ) -> tuple[LaunchResult, list[memoryview]]:
        reads = self._reads(buffers)
        if reads is None:
            return super().launch_and_view(calls, settings, buffers)
        launch = self._launch(calls, settings)
        response = self.exchange_all([launch, *reads], timeout=settings.timeout)[0]
        return self._result(response), self._views(reads)

    def launch_varied(
        self,
        calls: Sequence[Call | Transfer],
        settings: LaunchSettings,
        variation: Variation,
        buffers: Sequence[Buffer],
    ) -> tuple[LaunchResult, Views]:
        if "variation" not in self._device.capabilities:
            return super().launch_varied(calls, settings, variation, buffers)
        launch = self._launch(calls, settings)
        reads = self._reads(buffers)
        # Nothing that was posted may still refer to the window.
        self._settle()
        vary = self._vary(variation, reads)
        requests = [vary, launch, *(reads or ())]
        start, queued = time.monotonic_ns(), _queued_ns()
        response = self.exchange_all(requests, timeout=settings.timeout)[1]
        elapsed = time.monotonic_ns() - start
        copied = sum(copy.bytes for copy in (*vary.poisoned, *vary.snapshots, *(reads or ())))
        delays = int(_queued_ns() - queued + copied / SLOWEST_COPY)
        result = replace(self._result(response), elapsed_ns=elapsed, delays_ns=delays)
        if reads is None:
            return result, Views(self.view(buffers))
        copies = self._views(vary.snapshots)
        before = [
            view for view, copy in zip(copies, vary.snapshots, strict=True) if not copy.moment
        ]
        return result, Views(self._views(reads), before, copies[len(before) :])

    def _vary(self, variation: Variation, reads: Sequence[MemoryRead] | None) -> Vary:
        """The request for a variation; its contents are at the end of the window, its copies after
        those of `reads`. Without room there, or without reads, it copies nothing."""
        window = self._connection.window
        place = window.nbytes
        pieces = []
        for piece in variation.pieces:
            places = []
            for content in (piece.own, piece.other):
                place -= len(content)
                window.memory[place : place + len(content)] = content
                places.append(place)
            pieces.append(
                Piece(piece.buffer.address + piece.offset, piece.nbytes, _change(piece), *places)
            )
        end = max((_after(read.offset + read.bytes) for read in reads or ()), default=0)
        snapshots = []
        for moment, buffers in ((Moment.BEFORE, variation.before), (Moment.AFTER, variation.after)):
            for buffer in buffers:
                snapshots.append(Snapshot(buffer.address, buffer.nbytes, end, moment))
                end = _after(end + buffer.nbytes)
        if reads is None or end > place:
            snapshots = []
        spans = tuple(Span(buffer.address, buffer.nbytes) for buffer in variation.poisoned)
        return Vary(variation.secret, tuple(pieces), spans, tuple(snapshots))

    def _launch(self, calls: Sequence[Call | Transfer], how: LaunchSettings) -> KernelLaunch:
        check_launch(self._device, calls, how)
        realtime = how.realtime and "realtime" in self._device.capabilities
        orchestrated = [call for call in calls if isinstance(call, Call) and call.submits]
        kernels = [kernel for call in orchestrated for kernel in call.submits]
        return KernelLaunch(
            warmup=how.warmup,
            samples=how.samples,
            inner=how.inner,
            min_sample_ns=how.min_sample_ns,
            clock=Clock(0) if self._counted else Clock.ALL,
            conditions=how.cold * Condition.COLD + realtime * Condition.REALTIME,
            calls=tuple(LaunchCall(kernel.handle, 0) for kernel in kernels)
            if orchestrated
            else tuple(_call(call) for call in calls),
            arguments=tuple(_argument(arg) for call in calls for arg in _arguments(call)),
            orchestration=orchestrated[0].kernel.handle if orchestrated else 0,
        )

    def _explanation(self, output: str) -> str:
        # Counting means an emulator, which may itself have crashed.
        return emulator_said(output) if self._counted else super()._explanation(output)

    def _result(self, response: Response) -> LaunchResult:
        samples, had = response.samples, response.conditions
        if self._counted:
            counts = {INSTRUCTIONS.name: tuple(sample.instructions for sample in samples)}
            return LaunchResult(response.value, (), (), (), (), counts)
        return LaunchResult(
            inner=response.value,
            wall_ns=tuple([sample.wall_ns for sample in samples]),
            cpu_ns=tuple([sample.cpu_ns for sample in samples]),
            involuntary=tuple([sample.involuntary for sample in samples]),
            voluntary=tuple([sample.voluntary for sample in samples]),
            transfer_ns=tuple([sample.transfer_ns for sample in samples]),
            others_ns=tuple([sample.others_ns for sample in samples]),
            varied=tuple([_varied(sample.changes) for sample in samples]),
            report=report_of(response),
            cold=bool(had & Condition.COLD),
            realtime=bool(had & Condition.REALTIME),
            aslr=not had & Condition.FIXED_ADDRESSES,
            sandboxed=bool(had & Condition.SANDBOXED),
        )


def _queued_ns() -> int:
    """Nanoseconds that this thread waited for a core; 0 if the system does not tell."""
    try:
        return int(SCHEDULE.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _varied(changes: int) -> bool | None:
    return None if changes == Changes.PROOF else changes == Changes.ALL


def report_of(response: Response) -> dict[str, str]:
    """The lines `key=value` in the response to a launch."""
    return dict(line.split("=", 1) for line in response.detail.splitlines() if "=" in line)


def _change(piece: VariedPiece) -> Change:
    if not piece.own:
        return Change.POISON
    return Change.EXCHANGE if piece.other else Change.RESTORE


def _load(kernel: LoadedKernel, entry: str, name: str = "") -> Load:
    path = str(kernel.path.absolute())
    return Load(kernel.arguments, path, entry, name, kernel.buffers)


def _flat(data: Data) -> memoryview:
    view = memoryview(data)  # type: ignore[arg-type]  # numpy declares it from 3.12 on
    if view.nbytes == 0:
        return memoryview(b"")
    if view.c_contiguous:
        with contextlib.suppress(TypeError):
            return view.cast("B")
    # Not contiguous, or an element type that memoryview cannot cast.
    return memoryview(view.tobytes())


def _after(end: int) -> int:
    """The next aligned position in a window."""
    return -(-end // LINE) * LINE


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
