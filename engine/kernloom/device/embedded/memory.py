"""A mirror of a bare-metal part's memory: the part itself exists only during a launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernloom.base.errors import ConfigError, DeviceError
from kernloom.base.expressions import format_size, parse_size
from kernloom.config.schema import Arch
from kernloom.device.contract import Buffer

ALIGNMENT = 64
GUARD_BYTES = 64
"""Minimal gap between two buffers, and before the first."""
BEYOND_BYTES = 64 << 10
"""Bytes of unused memory after the last buffer that are checked as well."""
_PATTERN = bytes((37 * i + 11) % 251 for i in range(251))
"""Fill pattern of unused memory, which a stray write is unlikely to reproduce."""


@dataclass(frozen=True)
class MemoryMap:
    """Addresses and sizes of a part's memories, in bytes; the firmware takes the start of its
    RAM."""

    flash_base: int
    flash: int
    ram_base: int
    ram: int
    firmware: int
    """The firmware's share of the RAM: its stack, and the data of firmware and kernel."""
    stack: int

    @property
    def tensors_base(self) -> int:
        return self.ram_base + self.firmware

    @property
    def tensors(self) -> int:
        """Bytes of RAM left for tensors."""
        return self.ram - self.firmware


def memory_map(arch: Arch) -> MemoryMap:
    """The memory map that an arch declares."""
    values = {}
    for name in MemoryMap.__dataclass_fields__:
        key = f"arch.memory.{name}"
        if name not in arch.memory:
            raise ConfigError(f"arch '{arch.name}' does not say it", key=key)
        values[name] = parse_size(arch.memory[name], key=key)
    found = MemoryMap(**values)
    for name in ("flash", "ram"):
        size, base = values[name], values[f"{name}_base"]
        if size < 1 or size & (size - 1) or base % size:
            raise ConfigError(
                f"{size} bytes at {base:#x} cannot be protected",
                key=f"arch.memory.{name}",
                hint="A memory's size must be a power of two, and its base a multiple of it.",
            )
    if not found.stack < found.firmware < found.ram:
        raise ConfigError(
            f"a stack of {found.stack} bytes in {found.firmware} bytes for the firmware in "
            f"{found.ram} bytes of RAM do not fit into each other",
            key="arch.memory",
        )
    return found


@dataclass
class _Block:
    """A live or freed buffer."""

    buffer: Buffer
    freed: bool = False


class PartMemory:
    """Buffers in the region [base, base + nbytes) of a part's RAM."""

    def __init__(self, base: int, nbytes: int, part: str) -> None:
        self.base = base
        self._part = part
        self._nbytes = nbytes
        self._blocks: dict[int, _Block] = {}
        """Blocks by address; freed ones stay until their memory is reused."""
        self._used_to = 0
        self._mirror = bytearray()

    def allocate(self, nbytes: int, label: str) -> Buffer:
        if nbytes < 1:
            raise _refusal(f"buffer '{label}' cannot have {nbytes} bytes", "invalid")
        # Use fresh memory as long as possible, so that accesses to stale buffers are recognised.
        start = self._used_to + GUARD_BYTES
        if start + nbytes + GUARD_BYTES > self._nbytes:
            start = self._find_gap(nbytes)
        if start < 0:
            free = max(0, self._nbytes - 2 * GUARD_BYTES - self._taken())
            raise DeviceError(
                f"buffer '{label}' of {format_size(nbytes)} does not fit: part '{self._part}' has "
                f"{format_size(self._nbytes)} for tensors, {format_size(free)} of it free",
                status="out_of_memory",
            )
        buffer = Buffer(self.base + start, nbytes, label)
        self._forget(start, start + nbytes)
        self._blocks[buffer.address] = _Block(buffer)
        self._grow(start + _rounded(nbytes))
        self._mirror[start : start + nbytes] = bytes(nbytes)
        return buffer

    def free(self, buffer: Buffer) -> None:
        block = self._block(buffer.address, "double_free")
        if block.buffer.address != buffer.address:
            raise _refusal(
                f"address {buffer.address:#x} is inside buffer '{block.buffer.label}', "
                "not its start",
                "unknown_address",
            )
        block.freed = True
        start = block.buffer.address - self.base
        end = start + block.buffer.nbytes
        self._mirror[start:end] = _pattern(start, end)

    def write(self, buffer: Buffer, data: memoryview, offset: int) -> None:
        start = self._start(buffer, offset, len(data))
        self._mirror[start : start + len(data)] = data

    def read(self, buffer: Buffer, nbytes: int, offset: int) -> bytearray:
        start = self._start(buffer, offset, nbytes)
        return self._mirror[start : start + nbytes]

    def fill(self, buffer: Buffer, value: int) -> None:
        if not 0 <= value <= 255:
            raise _refusal(f"{value} is not a byte", "invalid")
        start = self._start(buffer, 0, buffer.nbytes)
        self._mirror[start : start + buffer.nbytes] = bytes([value]) * buffer.nbytes

    def address(self, buffer: Buffer) -> int:
        """The address of a live buffer, as kernels see it."""
        self._start(buffer, 0, buffer.nbytes)
        return buffer.address

    def image(self) -> bytearray:
        """The memory's content before a launch."""
        return self._mirror

    def take(self, image: bytes) -> None:
        """Store the memory's content after a launch; DeviceError if anything but live buffers
        changed."""
        at = 0
        for block in [*self._live(), None]:
            end = block.buffer.address - self.base if block else len(self._mirror)
            if image[at:end] != self._mirror[at:end]:
                changed = next(i for i in range(at, end) if image[i] != self._mirror[i])
                raise self._reached(changed)
            if block:
                at = end + block.buffer.nbytes
        self._mirror[:] = image

    def _reached(self, at: int) -> DeviceError:
        address = self.base + at
        inside = [b for b in self._blocks.values() if b.freed and _covers(b.buffer, address)]
        block = min(
            inside or self._live(), key=lambda block: _distance(block.buffer, address), default=None
        )
        if block is None:
            message = f"the kernel wrote to address {address:#x}, where no buffer is"
        else:
            what = "used freed buffer" if block.freed else "reached outside buffer"
            message = (
                f"the kernel {what} '{block.buffer.label}' of {block.buffer.nbytes} bytes, "
                f"at byte offset {address - block.buffer.address}"
            )
        return DeviceError(message, status="out_of_bounds")

    def _live(self) -> list[_Block]:
        live = [block for block in self._blocks.values() if not block.freed]
        return sorted(live, key=lambda block: block.buffer.address)

    def _taken(self) -> int:
        return sum(_rounded(block.buffer.nbytes) + GUARD_BYTES for block in self._live())

    def _find_gap(self, nbytes: int) -> int:
        """The first gap between live buffers that is large enough; -1 if there is none."""
        start = GUARD_BYTES
        for block in self._live():
            at = block.buffer.address - self.base
            if start + nbytes + GUARD_BYTES <= at:
                return start
            start = at + _rounded(block.buffer.nbytes) + GUARD_BYTES
        return start if start + nbytes + GUARD_BYTES <= self._nbytes else -1

    def _forget(self, start: int, end: int) -> None:
        """Forget freed buffers whose memory is reused."""
        first, last = self.base + start, self.base + end
        for address, block in list(self._blocks.items()):
            if address < last and first < address + block.buffer.nbytes:
                del self._blocks[address]

    def _grow(self, used_to: int) -> None:
        self._used_to = max(self._used_to, used_to)
        size = min(self._used_to + BEYOND_BYTES, self._nbytes)
        if size > len(self._mirror):
            self._mirror += _pattern(len(self._mirror), size)

    def _start(self, buffer: Buffer, offset: int, nbytes: int) -> int:
        """Index in the mirror of a range of a live buffer or sub-buffer."""
        known = self._block(buffer.address, "use_after_free").buffer
        rest = known.address + known.nbytes - buffer.address
        if offset < 0 or nbytes < 0 or offset + nbytes > min(buffer.nbytes, rest):
            raise _refusal(
                f"{nbytes} bytes at offset {offset} are not inside buffer '{known.label}' "
                f"of {known.nbytes} bytes",
                "invalid",
            )
        return buffer.address - self.base + offset

    def _block(self, address: int, when_freed: str) -> _Block:
        """The buffer that contains an address; DeviceError if it was freed."""
        inside = (block for block in self._blocks.values() if _covers(block.buffer, address))
        block = next(inside, None)
        if block is None:
            raise _refusal(f"no buffer is at address {address:#x}", "unknown_address")
        if block.freed:
            raise _refusal(f"buffer '{block.buffer.label}' is already freed", when_freed)
        return block


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def padded_bytes(nbytes: Iterable[int]) -> int:
    """Memory that buffers of these sizes take, gaps included."""
    return GUARD_BYTES + sum(_rounded(n) + GUARD_BYTES for n in nbytes)


def _pattern(start: int, end: int) -> bytes:
    skipped = start % len(_PATTERN)
    repeats = (skipped + end - start) // len(_PATTERN) + 1
    return (_PATTERN * repeats)[skipped : skipped + end - start]


def _covers(buffer: Buffer, address: int) -> bool:
    return buffer.address <= address < buffer.address + buffer.nbytes


def _distance(buffer: Buffer, address: int) -> int:
    end = buffer.address + buffer.nbytes
    return max(buffer.address - address, address - end + 1, 0)


def _refusal(message: str, code: str) -> DeviceError:
    return DeviceError(message, status="refused", code=code)
