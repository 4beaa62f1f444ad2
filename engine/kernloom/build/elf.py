"""The parts of a shared library that matter before it is loaded, from an ELF file of 64 bits.

Segments and the dynamic section are what the loader reads; section headers lead to the symbols.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

MAGIC = b"\x7fELF"
SHARED = 3
"""File type of a shared library."""
X86_64, AARCH64, RISCV = 62, 183, 243
WRITABLE, EXECUTABLE = 2, 1
"""Flags of a segment."""
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
"""Types of segments."""
NEEDED, STRTAB, SYMTAB, INIT, FINI = 1, 5, 6, 12, 13
INIT_ARRAY, FINI_ARRAY, INIT_ARRAY_BYTES, FINI_ARRAY_BYTES = 25, 26, 27, 28
PREINIT_ARRAY, PREINIT_ARRAY_BYTES, AUXILIARY, FILTER = 32, 33, 0x7FFFFFFD, 0x7FFFFFFF
AUDIT, DEPENDENCY_AUDIT = 0x6FFFFEFC, 0x6FFFFEFB
_RELA, _RELA_BYTES, _REL, _PLT, _PLT_BYTES, _PLT_TYPE = 7, 8, 17, 23, 2, 20
"""Tags of the dynamic section."""
_REPEATED = frozenset({NEEDED, AUXILIARY, FILTER, AUDIT, DEPENDENCY_AUDIT})
"""Tags that may be there more than once."""
_PAGE = 4096
_LONGEST_NAME = 1 << 16
_CODE, _WRITE = 4, 1
_SYMBOLS, _DYNAMIC_SYMBOLS = 2, 11
FUNCTION, LOCAL = 2, 0
"""Type and binding of a symbol."""
_IFUNC = 10
RELATIVE: Mapping[int, int] = {X86_64: 8, AARCH64: 1027, RISCV: 3}
IRELATIVE: Mapping[int, int] = {X86_64: 37, AARCH64: 1032, RISCV: 58}
"""Machine -> number of a relocation type."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_TAG = struct.Struct("<qQ")
_ADDRESS = struct.Struct("<Q")

_Item = TypeVar("_Item")


class ElfError(ValueError):
    """A damaged file; the message goes on after the name of the library."""


class Segment(NamedTuple):
    """A part of the file as it is mapped."""

    type: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


class Section(NamedTuple):
    """A part of the file as it was linked."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    bytes: int
    link: int


class Symbol(NamedTuple):
    """A name and what it refers to."""

    name: str
    type: int
    binding: int
    defined: bool
    visible: bool
    address: int
    bytes: int


@dataclass(frozen=True)
class Library:
    """A shared library of a machine with 64-bit little-endian words."""

    data: bytes
    machine: int
    type: int
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]

    @classmethod
    def read(cls, data: bytes) -> Library | None:
        """None for anything but such a file. Whatever is read of a damaged one raises ElfError."""
        if data[:6] != MAGIC + b"\x02\x01":
            return None
        header = _unpacked(_HEADER, data, 0)
        kind, machine, at_segments, at_sections = header[1], header[2], header[5], header[6]
        segment_count, section_count, names_at = header[10], header[12], header[13]
        segments = []
        for number in range(segment_count):
            one = _unpacked(_SEGMENT, data, at_segments + number * _SEGMENT.size)
            segments.append(Segment(one[0], one[1], one[2], one[3], one[5], one[6]))
        raw = [
            _unpacked(_SECTION, data, at_sections + number * _SECTION.size)
            for number in range(section_count)
        ]
        names = _item(raw, names_at)[4] if raw else 0
        sections = tuple(
            Section(_text(data, names + one[0]), one[1], one[2], one[3], one[4], one[5], one[6])
            for one in raw
        )
        return cls(data, machine, kind, tuple(segments), sections)

    @cached_property
    def tags(self) -> Mapping[int, tuple[int, ...]]:
        """The dynamic section: tag -> its values."""
        found: dict[int, tuple[int, ...]] = {}
        for segment in self.segments:
            if segment.type != DYNAMIC:
                continue
            # The loader goes by the address, and on until the end is marked.
            at = self.offset_of(segment.address)
            while (pair := _unpacked(_TAG, self.data, at))[0] != 0:
                found[pair[0]] = (*found.get(pair[0], ()), pair[1])
                at += _TAG.size
        return found

    def tag(self, number: int) -> int:
        return self.tags.get(number, (0,))[0]

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Names of the libraries that are loaded with it."""
        return tuple(self._texts(NEEDED))

    def _texts(self, tag: int) -> Iterator[str]:
        base = self.offset_of(self.tag(STRTAB))
        for value in self.tags.get(tag, ()):
            yield _text(self.data, base + value)

    @cached_property
    def dynamic_symbols(self) -> tuple[Symbol, ...]:
        return self._symbols(_DYNAMIC_SYMBOLS)

    @cached_property
    def all_symbols(self) -> tuple[Symbol, ...]:
        """Also the local ones, unless the library is stripped."""
        return self._symbols(_SYMBOLS)

    def _symbols(self, kind: int) -> tuple[Symbol, ...]:
        found = []
        for section in self.sections:
            if section.type != kind:
                continue
            strings = _item(self.sections, section.link).offset
            for at in range(0, section.bytes, _SYMBOL.size):
                one = _unpacked(_SYMBOL, self.data, section.offset + at)
                name, info, other, place, address, size = one
                found.append(
                    Symbol(
                        _text(self.data, strings + name),
                        info & 15,
                        info >> 4,
                        place != 0,
                        other & 3 in (0, 3),
                        address,
                        size,
                    )
                )
        return tuple(found)

    @property
    def imports(self) -> Iterator[str]:
        """Symbols that other libraries must define."""
        return (one.name for one in self.dynamic_symbols if one.name and not one.defined)

    @property
    def exports(self) -> Iterator[str]:
        """Symbols that other libraries could use."""
        return (
            one.name
            for one in self.dynamic_symbols
            if one.name and one.defined and one.visible and one.binding != LOCAL
        )

    @property
    def ifuncs(self) -> Iterator[str]:
        """Functions that are chosen by code that runs while the library is loaded."""
        for one in (*self.dynamic_symbols, *self.all_symbols):
            if one.type == _IFUNC and one.defined:
                yield one.name
        wanted = IRELATIVE.get(self.machine)
        if any(info & 0xFFFFFFFF == wanted for _, info, _ in self._relocations):
            yield "(a local one)"

    @cached_property
    def _relocations(self) -> tuple[tuple[int, int, int], ...]:
        """Place, type and symbol, addend."""
        found: list[tuple[int, int, int]] = []
        for table, size in ((_RELA, _RELA_BYTES), (_PLT, _PLT_BYTES)):
            if not self.tag(size):
                continue
            start = self.offset_of(self.tag(table))
            end = start + self.tag(size)
            found += (
                _unpacked(_RELOCATION, self.data, at)
                for at in range(start, end - _RELOCATION.size + 1, _RELOCATION.size)
            )
        return tuple(found)

    @property
    def looked_up(self) -> Iterator[str]:
        """Names that it defines and also refers to by symbol: the definition of another library
        would be used instead."""
        for number in dict.fromkeys(info >> 32 for _, info, _ in self._relocations):
            one = _item(self.dynamic_symbols, number)
            if one.name and one.defined and one.visible and one.binding != LOCAL:
                yield one.name

    def check(self) -> None:
        """Raises ElfError if section headers and what the loader reads disagree, or if a table is
        there twice."""
        page, end = ~(_PAGE - 1), 0
        for one in self.segments:
            if one.type != LOAD:
                continue
            if one.address & page < end or one.file_bytes > one.memory_bytes:
                raise ElfError("is damaged: it has segments that lie over each other")
            end = one.address + one.memory_bytes + _PAGE - 1 & page
        if sum(one.type == DYNAMIC for one in self.segments) != 1:
            raise ElfError("has not exactly one dynamic section")
        for tag, values in self.tags.items():
            if len(values) > 1 and tag not in _REPEATED:
                raise ElfError(f"has tag {tag:#x} of the dynamic section twice")
        if _REL in self.tags or self.tags.get(_PLT_TYPE, (_RELA,)) != (_RELA,):
            raise ElfError("has relocations without addends")
        tables = [one for one in self.sections if one.type in (_SYMBOLS, _DYNAMIC_SYMBOLS)]
        if sum(one.bytes for one in tables) > len(self.data):
            raise ElfError("has tables of symbols that lie over each other")
        read = [one for one in tables if one.type == _DYNAMIC_SYMBOLS]
        if len(read) != 1 or not self._is_at(read[0], SYMTAB):
            raise ElfError("has no section with the symbols that the loader uses")
        if not self._is_at(_item(self.sections, read[0].link), STRTAB):
            raise ElfError("has no section with the names that the loader uses")
        if any(info >> 32 >= len(self.dynamic_symbols) for _, info, _ in self._relocations):
            raise ElfError("has relocations of symbols that are in no table")

    def _is_at(self, section: Section, tag: int) -> bool:
        """Whether a section is where a tag of the dynamic section says."""
        address = self.tag(tag)
        return section.address == address and section.offset == self.offset_of(address)

    def functions_of(self, array: int, size: int) -> Iterator[Symbol]:
        """The functions in an array of the dynamic section, such as the constructors. A function
        without a symbol has its address as a name."""
        start = self.tag(array)
        end = start + self.tag(size)
        if start == end:
            return
        relocated: dict[int, tuple[int, int]] = {}
        for at, info, addend in self._relocations:
            if start - 8 < at < end and ((at - start) % 8 or at in relocated):
                raise ElfError(f"has relocations that lie over each other in tag {array:#x}")
            relocated[at] = (info, addend)
        by_address = {one.address: one for one in self.all_symbols if one.type == FUNCTION}
        for place in range(start, end, 8):
            stored = _unpacked(_ADDRESS, self.data, self.offset_of(place))[0]
            info, address = relocated.get(place, (RELATIVE.get(self.machine, 0), stored))
            if info >> 32:
                yield _item(self.dynamic_symbols, info >> 32)
            else:
                unnamed = Symbol(f"{address:#x}", FUNCTION, LOCAL, True, False, address, 0)
                yield by_address.get(address, unnamed)

    def code(self, symbol: Symbol) -> bytes:
        start = self.offset_of(symbol.address)
        return self.data[start : start + symbol.bytes]

    def offset_of(self, address: int) -> int:
        """The place in the file of an address in memory."""
        for segment in self.segments:
            inside = address - segment.address
            if segment.type == LOAD and 0 <= inside < max(segment.file_bytes, 1):
                return segment.offset + inside
        raise ElfError(f"is damaged: address {address:#x} is in no part of the file")

    def section(self, name: str) -> Section | None:
        return next((one for one in self.sections if one.name == name), None)

    @property
    def writable_code(self) -> Iterator[str]:
        """Sections and segments that are both writable and executable."""
        both = _WRITE | _CODE
        found = [one.name for one in self.sections if one.flags & both == both]
        yield from found
        for number, segment in enumerate(self.segments):
            mapped = segment.type == LOAD
            if mapped and not found and segment.flags & 3 == WRITABLE | EXECUTABLE:
                yield f"segment {number}"

    @property
    def executable_stack(self) -> bool:
        """Whether loading it makes the stack executable: also if it says nothing on x86-64."""
        flags = [one.flags for one in self.segments if one.type == STACK]
        return any(flag & EXECUTABLE for flag in flags) or (not flags and self.machine == X86_64)


def _unpacked(kind: struct.Struct, data: bytes, at: int) -> tuple[Any, ...]:
    if at + kind.size > len(data):
        raise ElfError("is damaged: a table goes beyond the end of the file")
    return kind.unpack_from(data, at)


def _item(table: Sequence[_Item], index: int) -> _Item:
    if index >= len(table):
        raise ElfError(f"is damaged: a table has no entry {index}")
    return table[index]


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + _LONGEST_NAME) if at < len(data) else -1
    if end < 0:
        raise ElfError("is damaged: a name goes beyond the end of the file")
    return data[at:end].decode(errors="replace")
