"""Firmware images, and the launch and report files that a firmware reads and writes.

native/firmware/launch.h defines both layouts: 64-bit little-endian numbers on every part.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernloom.base.errors import ConfigError, DeviceError, nearest

MAGIC = 0x316D77666C6B
MOST_WORDS = 1024
MOST_ARGUMENTS = 64
LAUNCH = struct.Struct("<7Q")
REPORT = struct.Struct("<7Q64s")
DONE, FAULT, LEFT, SIGNAL, REFUSED = range(5)
BUFFER, SCALAR = range(2)
PART_SECTION = ".kernloom"
"""ELF section with the name of the part that an image was built for."""

_ELF = b"\x7fELF"
_SYMBOL_TABLE = 2
_NO_BITS = 8
_FUNCTION = 2
_MACHINE_NAMES = {3: "x86", 40: "Arm", 62: "x86-64", 183: "64-bit Arm", 243: "RISC-V"}


@dataclass(frozen=True)
class Machine:
    """The machine fields of an ELF header."""

    number: int
    bits: int

    def __str__(self) -> str:
        return f"{self.bits}-bit {_MACHINE_NAMES.get(self.number, f'machine {self.number}')}"


MACHINES = {"armv7m": Machine(40, 32), "rv64": Machine(243, 64)}
"""Keyed by the arch's isa; native/firmware has a folder of start-up code for each."""


def machine_of(isa: str) -> Machine:
    if isa not in MACHINES:
        raise ConfigError(
            f"there is no firmware for '{isa}'", key="arch.isa", hint=nearest(isa, MACHINES)
        )
    return MACHINES[isa]


@dataclass(frozen=True)
class Image:
    """A firmware image and the addresses of its functions by name."""

    path: Path
    functions: dict[str, int]


def read_image(path: Path, part: str, machine: Machine) -> Image:
    """Read and check an image; the error says why it is not one for this part."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _not_for_it(path, part, f"it cannot be read: {error.strerror}") from None
    try:
        return _read(path, data, part, machine)
    except (struct.error, IndexError, ValueError):
        raise _not_for_it(path, part, "it is a broken ELF file") from None


def _not_for_it(path: Path, part: str, why: str) -> DeviceError:
    return DeviceError(
        f"{path} cannot be put on part '{part}': {why}", status="refused", code="load_failed"
    )


def _read(path: Path, data: bytes, part: str, machine: Machine) -> Image:
    if data[:4] != _ELF:
        raise _not_for_it(path, part, "it is not an ELF file")
    bits = {1: 32, 2: 64}.get(data[4], 0)
    little = data[5] == 1
    found = Machine(struct.unpack_from("<H" if little else ">H", data, 18)[0], bits)
    if found != machine or not little:
        order = "" if little else "big-endian "
        raise _not_for_it(path, part, f"it is for {order}{found}, and the part is {machine}")
    sections = _sections(data, bits)
    named = next((s for s in sections if s.name == PART_SECTION), None)
    if named is None:
        raise _not_for_it(path, part, f"it has no section {PART_SECTION}, so it is no firmware")
    made_for = named.content.rstrip(b"\0").decode(errors="replace")
    if made_for != part:
        raise _not_for_it(path, part, f"it was made for part '{made_for}'")
    return Image(path, dict(_functions(sections, bits)))


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    link: int
    content: bytes


def _sections(data: bytes, bits: int) -> list[_Section]:
    if bits == 32:
        header, at = struct.Struct("<10I"), struct.unpack_from("<I", data, 32)[0]
        size, count, names = struct.unpack_from("<3H", data, 46)
    else:
        header, at = struct.Struct("<2I4Q2I2Q"), struct.unpack_from("<Q", data, 40)[0]
        size, count, names = struct.unpack_from("<3H", data, 58)
    found = []
    for index in range(count):
        name, kind, _, _, start, length, link, *_ = header.unpack_from(data, at + index * size)
        content = b"" if kind == _NO_BITS else data[start : start + length]
        found.append((name, kind, link, content))
    texts = found[names][3]
    return [
        _Section(_text(texts, name), kind, link, content) for name, kind, link, content in found
    ]


def _functions(sections: Sequence[_Section], bits: int) -> Iterator[tuple[str, int]]:
    for table in sections:
        if table.kind != _SYMBOL_TABLE:
            continue
        texts = sections[table.link].content
        entry = struct.Struct("<3I2BH" if bits == 32 else "<I2BH2Q")
        whole = len(table.content) // entry.size * entry.size
        for fields in entry.iter_unpack(table.content[:whole]):
            if bits == 32:
                name, value, _, info, _, section = fields
            else:
                name, info, _, section, value, _ = fields
            if info & 0xF == _FUNCTION and section:
                yield _text(texts, name), value


def _text(texts: bytes, at: int) -> str:
    return texts[at : texts.index(b"\0", at)].decode(errors="replace")


@dataclass(frozen=True)
class FirmwareCall:
    """One call of a launch: the function's address, and the kind and value of each argument."""

    function: int
    args: tuple[tuple[int, int], ...]


def pack_launch(
    calls: Sequence[FirmwareCall], warmup: int, inner: int, address: int, nbytes: int
) -> bytes:
    """The launch file without the memory, which follows it."""
    words = [
        word
        for call in calls
        for word in (call.function, len(call.args), *(part for arg in call.args for part in arg))
    ]
    longest = max(len(call.args) for call in calls)
    if len(words) > MOST_WORDS or longest > MOST_ARGUMENTS:
        raise DeviceError(
            f"a firmware takes at most {MOST_ARGUMENTS} arguments for a call and {MOST_WORDS} "
            f"numbers for a launch, not {longest} and {len(words)}",
            status="refused",
            code="invalid",
        )
    head = LAUNCH.pack(MAGIC, warmup, inner, len(calls), len(words), address, nbytes)
    return head + struct.pack(f"<{len(words)}Q", *words)


@dataclass(frozen=True)
class Report:
    """The outcome of a launch as the firmware reports it."""

    status: int
    code: int
    name: str
    address: int | None
    pc: int | None

    def __str__(self) -> str:
        address = "" if self.address is None else f" for address {self.address:#x}"
        pc = "" if self.pc is None else f" at instruction {self.pc:#x}"
        return f"{self.name}{address}{pc}"


def unpack_report(data: bytes) -> Report | None:
    """The report, or None if the firmware did not get as far as writing one."""
    if len(data) < REPORT.size:
        return None
    magic, status, code, address, has_address, pc, has_pc, name = REPORT.unpack_from(data)
    if magic != MAGIC:
        return None
    text = name.partition(b"\0")[0].decode(errors="replace")
    # An exit code is a C int.
    signed = code - (1 << 64) if code >> 63 else code
    return Report(status, signed, text, address if has_address else None, pc if has_pc else None)
