"""The worker's buffers: device memory at addresses that are never reused."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl

from kernloom.base.expressions import format_size
from kernloom.device.messages import Status

GUARD_BYTES = 4096
"""Guard bytes on both sides of a buffer; a multiple of every device's sub-buffer alignment."""
CANARY = 0xA5
FIRST_ADDRESS = 1 << 32


class RequestError(Exception):
    """A request that is answered with a status other than OK."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass
class Block:
    """One buffer with guards around it."""

    address: int
    nbytes: int
    label: str
    whole: Any
    """The allocation, guards included."""
    buffer: Any
    """The kernels' view: a sub-buffer between the guards."""
    parts: dict[int, Any] = field(default_factory=dict)
    """Offset -> sub-buffer from there to the end."""
    host: Any = None
    """The host's copy, while a launch transfers the buffer."""
    in_place: bool = False
    """Whether it is host memory that the device reads in place."""

    @property
    def title(self) -> str:
        return f"'{self.label}' of {self.nbytes} bytes"


class Memory:
    """All buffers that a session has allocated on one device."""

    def __init__(self, context: Any, queue: Any, device: Any) -> None:
        self._context = context
        self._queue = queue
        self._largest = int(device.max_mem_alloc_size)
        self._total = int(device.global_mem_size)
        self.alignment = max(1, int(device.mem_base_addr_align) // 8)
        self._guard = -(-GUARD_BYTES // self.alignment) * self.alignment
        self._used = 0
        self._next = FIRST_ADDRESS
        self._starts: list[int] = []
        self._extents: dict[int, tuple[int, str]] = {}
        self._blocks: dict[int, Block] = {}

    def allocate(self, nbytes: int, label: str) -> int:
        if nbytes == 0:
            raise RequestError(Status.INVALID, f"buffer '{label}' would have no bytes")
        size = nbytes + 2 * self._guard
        if size > self._largest or self._used + size > self._total:
            raise RequestError(
                Status.OUT_OF_MEMORY,
                f"no memory for buffer '{label}' of {format_size(nbytes)}: the device takes "
                f"{format_size(self._largest)} at once and has "
                f"{format_size(self._total - self._used)} left",
            )
        try:
            whole = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)
            for start in (0, self._guard + nbytes):
                self._fill(whole, CANARY, start, self._guard)
        except cl.MemoryError:
            raise RequestError(
                Status.OUT_OF_MEMORY, f"no memory for buffer '{label}' of {format_size(nbytes)}"
            ) from None
        address = self._next
        # A gap, so that one past the end of a buffer is not the start of another.
        self._next += -(-(nbytes + 1) // 4096) * 4096
        self._used += size
        self._starts.append(address)
        self._extents[address] = (nbytes, label)
        self._blocks[address] = Block(
            address, nbytes, label, whole, whole.get_sub_region(self._guard, nbytes)
        )
        return address

    def free(self, address: int) -> None:
        block = self._blocks.pop(address, None)
        if block is None:
            if address in self._extents:
                label = self._extents[address][1]
                raise RequestError(Status.DOUBLE_FREE, f"buffer '{label}' was freed before")
            raise RequestError(Status.UNKNOWN_ADDRESS, f"no buffer starts at {address:#x}")
        self._used -= block.nbytes + 2 * self._guard
        for part in (*block.parts.values(), block.buffer, block.whole):
            part.release()

    def find(self, address: int, nbytes: int = 0) -> tuple[Block, int]:
        """The buffer that contains these bytes, and their offset in it."""
        place = bisect_right(self._starts, address) - 1
        start = self._starts[place] if place >= 0 else -1
        size, label = self._extents.get(start, (0, ""))
        if place < 0 or address >= start + size:
            raise RequestError(Status.UNKNOWN_ADDRESS, f"no buffer is at {address:#x}")
        block = self._blocks.get(start)
        if block is None:
            raise RequestError(Status.USE_AFTER_FREE, f"buffer '{label}' was freed")
        offset = address - start
        if offset + nbytes > size:
            raise RequestError(
                Status.INVALID,
                f"{nbytes} bytes at offset {offset} are not inside buffer {block.title}",
            )
        return block, offset

    def move_to_host(self, block: Block) -> None:
        """Move the buffer and its content to host memory for good."""
        if block.in_place:
            return
        # Whole pages: some drivers copy memory that is not page-aligned.
        memory = np.frombuffer(mmap.mmap(-1, block.nbytes + 2 * self._guard), np.uint8)
        cl.enqueue_copy(self._queue, memory, block.whole)
        for part in (*block.parts.values(), block.buffer, block.whole):
            part.release()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        block.parts.clear()
        block.whole = cl.Buffer(self._context, flags, hostbuf=memory)
        block.buffer = block.whole.get_sub_region(self._guard, block.nbytes)
        block.in_place = True

    def argument(self, address: int) -> tuple[Block, Any]:
        """The kernel argument for an address: the buffer, or a sub-buffer from there on."""
        block, offset = self.find(address)
        if offset == 0:
            return block, block.buffer
        if offset % self.alignment:
            raise RequestError(
                Status.INVALID,
                f"a kernel cannot start at offset {offset} of buffer {block.title}: "
                f"sub-buffers of this device start at multiples of {self.alignment} bytes",
            )
        if offset not in block.parts:
            block.parts[offset] = block.whole.get_sub_region(
                self._guard + offset, block.nbytes - offset
            )
        return block, block.parts[offset]

    def write(self, address: int, data: Any) -> None:
        block, offset = self.find(address, len(data))
        cl.enqueue_copy(self._queue, block.buffer, data, dst_offset=offset)

    def read(self, address: int, into: Any) -> None:
        block, offset = self.find(address, len(into))
        cl.enqueue_copy(self._queue, into, block.buffer, src_offset=offset)

    def fill(self, address: int, nbytes: int, value: int) -> None:
        if value > 0xFF:
            raise RequestError(Status.INVALID, f"{value} is not the value of a byte")
        block, offset = self.find(address, nbytes)
        self._fill(block.buffer, value, offset, nbytes)

    def _fill(self, buffer: Any, value: int, start: int, nbytes: int) -> None:
        pattern = np.full(1, value, np.uint8)
        cl.enqueue_fill_buffer(self._queue, buffer, pattern, start, nbytes).wait()

    def check_guards(self, block: Block) -> None:
        """Raise an error with the buffer's name if a kernel wrote beside it."""
        guard = np.empty(self._guard, np.uint8)
        for start, first in ((0, -self._guard), (self._guard + block.nbytes, block.nbytes)):
            cl.enqueue_copy(self._queue, guard, block.whole, src_offset=start)
            (changed,) = np.nonzero(guard != CANARY)
            if changed.size:
                # The changed byte nearest to the buffer.
                at = first + int(changed[-1 if start == 0 else 0])
                raise RequestError(
                    Status.OUT_OF_BOUNDS, f"a kernel wrote to byte offset {at} of {block.title}"
                )
