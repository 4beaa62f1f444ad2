"""Carries out the worker's requests, one method per message."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from kernloom.device.messages import (
    COPY_IN,
    COPY_OUT,
    VERSION,
    Allocate,
    Close,
    Free,
    Hello,
    KernelLaunch,
    LaunchArgument,
    Load,
    MemoryFill,
    MemoryRead,
    MemoryWrite,
    Message,
    Response,
    Sample,
    Status,
)
from kernloom.device.opencl.kernels import Kernels
from kernloom.device.opencl.memory import Block, Memory, RequestError

MAX_SAMPLES = 1_000_000
MAX_INNER = 1 << 20
"""Limit of iterations: more would take longer to enqueue than any sample should last."""
MAX_ENQUEUED = 512
"""Commands enqueued before the worker waits for them."""


@dataclass(frozen=True)
class Command:
    """One call of an iteration."""

    enqueue: Callable[[], Sequence[Any]]
    """Enqueues the call and returns its events."""
    transfer: bool


class Service:
    """One device with its memory and kernels."""

    def __init__(self, device: Any, window: mmap.mmap, *, in_place: bool = False) -> None:
        """With `in_place`, a transferred buffer is host memory and is only mapped."""
        self._in_place = in_place
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(
            self._context, device, cl.command_queue_properties.PROFILING_ENABLE
        )
        self._memory = Memory(self._context, self._queue, device)
        self._kernels = Kernels(self._context, device, self._memory)
        self._window = np.frombuffer(window, np.uint8)

    def answer(self, message: Message) -> Response:
        try:
            value, samples = self._execute(message)
        except RequestError as error:
            return Response(message.KIND, error.status, 0, str(error), ())
        except cl.MemoryError as error:
            return Response(message.KIND, Status.OUT_OF_MEMORY, 0, str(error), ())
        return Response(message.KIND, Status.OK, value, "", samples)

    def _execute(self, message: Message) -> tuple[int, tuple[Sample, ...]]:
        match message:
            case Hello():
                return VERSION, ()
            case Allocate(nbytes, label):
                return self._memory.allocate(nbytes, label), ()
            case Free(address):
                self._memory.free(address)
            case MemoryWrite(address, offset, nbytes):
                self._memory.write(address, self._piece(offset, nbytes))
            case MemoryRead(address, offset, nbytes):
                self._memory.read(address, self._piece(offset, nbytes))
            case MemoryFill(address, nbytes, value):
                self._memory.fill(address, nbytes, value)
            case Load(count, path, entry):
                return self._kernels.load(Path(path), entry, count), ()
            case KernelLaunch():
                return self._launch(message)
            case Close():
                self._queue.finish()
            case _:
                raise RequestError(
                    Status.UNSUPPORTED, f"OpenCL devices know no {type(message).__name__}"
                )
        return 0, ()

    def _piece(self, offset: int, nbytes: int) -> Any:
        if offset + nbytes > self._window.nbytes:
            raise RequestError(Status.INVALID, f"{nbytes} bytes at {offset} leave the window")
        return self._window[offset : offset + nbytes]

    def _launch(self, message: KernelLaunch) -> tuple[int, tuple[Sample, ...]]:
        if message.orchestration:
            raise RequestError(Status.UNSUPPORTED, "OpenCL devices run no orchestrations")
        if not message.calls or message.samples > MAX_SAMPLES or message.inner > MAX_INNER:
            raise RequestError(
                Status.INVALID,
                f"a launch of {len(message.calls)} calls, {message.samples} samples and "
                f"{message.inner} iterations each is not possible",
            )
        scratch: list[int] = []
        try:
            commands, blocks = self._commands(message, scratch)
            inner, samples = self._measured(commands, blocks, message)
        finally:
            for address in scratch:
                self._memory.free(address)
        return inner, samples

    def _measured(
        self, commands: Sequence[Command], blocks: Sequence[Block], message: KernelLaunch
    ) -> tuple[int, tuple[Sample, ...]]:
        try:
            inner = message.inner
            if inner:
                self._run(commands, message.warmup)
            else:
                warm = [self._run(commands, 1).wall_ns for _ in range(message.warmup)]
                inner = self._calibrated(commands, message.min_sample_ns, warm)
            samples = tuple(self._run(commands, inner) for _ in range(message.samples))
        finally:
            for block in blocks:
                block.host = None
        for block in blocks:
            self._memory.check_guards(block)
        return inner, samples

    def _commands(
        self, message: KernelLaunch, scratch: list[int]
    ) -> tuple[list[Command], list[Block]]:
        """The commands of an iteration and the buffers they touch; adds scratch addresses to free
        to `scratch`."""
        calls = []
        waiting = list(message.arguments)
        for call in message.calls:
            arguments, waiting = waiting[: call.arguments], waiting[call.arguments :]
            calls.append((call.kernel, arguments))
        blocks: dict[int, Block] = {}
        transfers = {}
        # Transfers first: kernels get the buffers as the transfers leave them.
        for place, (kernel, arguments) in enumerate(calls):
            if kernel in (COPY_IN, COPY_OUT):
                transfers[place], block = self._transfer(arguments, kernel == COPY_IN)
                blocks[block.address] = block
        commands = []
        for place, (kernel, arguments) in enumerate(calls):
            if place in transfers:
                commands.append(transfers[place])
                continue
            command, touched, temporary = self._call(kernel, arguments)
            commands.append(command)
            blocks |= {block.address: block for block in touched}
            if temporary is not None:
                scratch.append(temporary)
        return commands, list(blocks.values())

    def _call(
        self, handle: int, arguments: Sequence[LaunchArgument]
    ) -> tuple[Command, Sequence[Block], int | None]:
        passes, blocks, scratch = self._kernels.prepare(handle, arguments)

        def enqueue() -> list[Any]:
            return [
                cl.enqueue_nd_range_kernel(self._queue, each.kernel, each.items, each.group)
                for each in passes
            ]

        return Command(enqueue, transfer=False), blocks, scratch

    def _transfer(
        self, arguments: Sequence[LaunchArgument], inwards: bool
    ) -> tuple[Command, Block]:
        if len(arguments) != 1:
            raise RequestError(Status.WRONG_ARGUMENT_COUNT, "a transfer takes one buffer")
        block, offset = self._memory.find(arguments[0].bits)
        if offset:
            raise RequestError(Status.INVALID, f"a transfer takes all of buffer {block.title}")
        if self._in_place:
            self._memory.move_to_host(block)
            return Command(lambda: self._mapped_and_unmapped(block, inwards), transfer=True), block
        if block.host is None:
            block.host = np.empty(block.nbytes, np.uint8)
            cl.enqueue_copy(self._queue, block.host, block.buffer)
        ends = (block.buffer, block.host) if inwards else (block.host, block.buffer)

        def enqueue() -> list[Any]:
            return [cl.enqueue_copy(self._queue, *ends, is_blocking=False)]

        return Command(enqueue, transfer=True), block

    def _mapped_and_unmapped(self, block: Block, inwards: bool) -> list[Any]:
        """Map the buffer for the host to write or read, and unmap it."""
        flags = cl.map_flags.WRITE if inwards else cl.map_flags.READ
        given: Any = cl.enqueue_map_buffer(
            self._queue,
            block.buffer,
            flags,
            0,
            (block.nbytes,),
            np.dtype(np.uint8),
            is_blocking=False,
        )
        view, mapped = given
        return [mapped, view.base.release(self._queue)]

    def _run(self, commands: Sequence[Command], iterations: int) -> Sample:
        """Run iterations; times come from the device's own clock, per command."""
        kernels = transfers = 0
        waiting: list[tuple[Any, bool]] = []
        for iteration in range(iterations):
            for command in commands:
                waiting += [(event, command.transfer) for event in command.enqueue()]
            if len(waiting) >= MAX_ENQUEUED or iteration + 1 == iterations:
                self._queue.finish()
                for event, transfer in waiting:
                    took = event.profile.end - event.profile.start
                    transfers += took * transfer
                    kernels += took * (not transfer)
                waiting.clear()
        return Sample(kernels + transfers, 0, 0, 0, 0, transfers)

    def _calibrated(self, commands: Sequence[Command], least_ns: int, warm: Sequence[int]) -> int:
        """Iterations for a sample to last `least_ns`; `warm` has the times of single iterations.
        The shorter of two is used, because an interruption only lengthens a time."""
        inner, times = 1, list(warm)
        while True:
            while len(times) < 2 and min(times, default=least_ns) >= least_ns:
                times.append(self._run(commands, inner).wall_ns)
            took = min(times)
            if took >= least_ns or inner >= MAX_INNER:
                return inner
            growth = max(1.2, 1.2 * least_ns / took) if took else 10.0
            inner, times = min(MAX_INNER, int(inner * growth) + 1), []
