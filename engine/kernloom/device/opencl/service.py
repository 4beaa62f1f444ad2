"""Carries out the worker's requests, one method per message."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
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
    Vary,
)
from kernloom.device.opencl.kernels import Kernels
from kernloom.device.opencl.memory import Block, Memory, RequestError
from kernloom.device.opencl.sampling import MAX_INNER, Command, Sampling
from kernloom.device.opencl.variation import Variation

MAX_SAMPLES = 1_000_000


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
        self._variation: Variation | None = None
        """The variation of the next launch."""

    def answer(self, message: Message) -> Response:
        try:
            return self._execute(message)
        except RequestError as error:
            return Response(message.KIND, error.status, 0, str(error), ())
        except cl.MemoryError as error:
            return Response(message.KIND, Status.OUT_OF_MEMORY, 0, str(error), ())

    def _execute(self, message: Message) -> Response:
        value = 0
        match message:
            case KernelLaunch():
                return self._launch(message)
            case Hello():
                value = VERSION
            case Allocate(nbytes, label):
                value = self._memory.allocate(nbytes, label)
            case Free(address):
                self._memory.free(address)
            case MemoryWrite(address, offset, nbytes):
                self._memory.write(address, self._view(offset, nbytes))
            case MemoryRead(address, offset, nbytes):
                self._memory.read(address, self._view(offset, nbytes))
            case MemoryFill(address, nbytes, byte):
                self._memory.fill(address, nbytes, byte)
            case Load(count, path, entry):
                value = self._kernels.load(Path(path), entry, count)
            case Vary():
                # Kept only if it is valid.
                self._variation = None
                self._variation = Variation(message, self._memory, self._queue, self._view)
            case Close():
                self._queue.finish()
            case _:
                raise RequestError(
                    Status.UNSUPPORTED, f"OpenCL devices know no {type(message).__name__}"
                )
        return Response(message.KIND, Status.OK, value, "", ())

    def _view(self, offset: int, nbytes: int) -> Any:
        if offset + nbytes > self._window.nbytes:
            raise RequestError(Status.INVALID, f"{nbytes} bytes at {offset} leave the window")
        return self._window[offset : offset + nbytes]

    def _launch(self, message: KernelLaunch) -> Response:
        # Also for a launch that is refused: the next one may have other buffers.
        variation, self._variation = self._variation, None
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
            sampling = Sampling(self._queue, commands, variation)
            inner, samples = self._measured(sampling, blocks, message)
        finally:
            for address in scratch:
                self._memory.free(address)
        detail = f"stride={sampling.stride}" if variation else ""
        return Response(message.KIND, Status.OK, inner, detail, samples)

    def _measured(
        self, sampling: Sampling, blocks: Sequence[Block], message: KernelLaunch
    ) -> tuple[int, tuple[Sample, ...]]:
        try:
            inner = message.inner
            if inner:
                sampling.warm_up(message.warmup)
            else:
                inner = sampling.calibrated(message.warmup, message.min_sample_ns)
            samples = sampling.samples(inner, message.samples)
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
