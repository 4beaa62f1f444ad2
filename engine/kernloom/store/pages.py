"""The rows that stand on the pages of a SQLite file, read without SQLite, page by page.

SQLite finds a row by way of others and stops where one is damaged. Trials are only ever added,
never changed, so whatever row can be read on any page, or on any version of it in the write-ahead
log, is a good one; how the pages hang together does not matter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"SQLite format 3\0"
WAL_MAGIC = (0x377F0682, 0x377F0683)
TABLE_LEAF, INDEX_LEAF, INDEX_INNER = 0x0D, 0x0A, 0x02
PAGE_SIZE = 4096
"""What Kernloom's stores have, for when the header does not say."""
LONGEST = 1 << 28
"""No row is this long; a length that says so is damage."""

Value = int | float | str | bytes | None


@dataclass(frozen=True)
class Row:
    """A row, and whether it stands in a table or in an index."""

    values: tuple[Value, ...]
    table: bool


class Pages:
    """The pages of a file and of the log beside it."""

    def __init__(self, path: Path, log: Path) -> None:
        self._data = path.read_bytes() if path.is_file() else b""
        self._log = log.read_bytes() if log.is_file() else b""
        self.size = self._page_size()
        self._latest: dict[int, bytes] = {}
        """Number -> page, of those in the log."""
        for number, page in self._frames():
            self._latest[number] = page

    def is_store(self) -> bool:
        """Whether this was ever a file of SQLite's."""
        return self._data.startswith(MAGIC) or bool(self._latest)

    def rows(self) -> Iterator[Row]:
        """Whatever can be read, some of it more than once."""
        for start in range(0, len(self._data), self.size):
            page = self._data[start : start + self.size]
            yield from self._rows_on(page, 100 if start == 0 else 0)
        for number, page in self._frames():
            yield from self._rows_on(page, 100 if number == 1 else 0)

    def _page_size(self) -> int:
        if self._data.startswith(MAGIC):
            (size,) = struct.unpack_from(">H", self._data, 16)
        elif len(self._log) >= 32 and struct.unpack_from(">I", self._log)[0] in WAL_MAGIC:
            (size,) = struct.unpack_from(">I", self._log, 8)
        else:
            size = PAGE_SIZE
        size = 65536 if size == 1 else size
        return size if 512 <= size <= 65536 and not size & (size - 1) else PAGE_SIZE

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """Page number and page of each frame, also of those after a damaged one."""
        for start in range(32, len(self._log) - 24 - self.size + 1, 24 + self.size):
            (number,) = struct.unpack_from(">I", self._log, start)
            yield number, self._log[start + 24 : start + 24 + self.size]

    def _page(self, number: int) -> bytes:
        start = (number - 1) * self.size
        return self._latest.get(number) or self._data[start : start + self.size]

    def _rows_on(self, page: bytes, header: int) -> Iterator[Row]:
        if len(page) < header + 12:
            return
        kind = page[header]
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_INNER):
            return
        (cells,) = struct.unpack_from(">H", page, header + 3)
        pointers = header + (12 if kind == INDEX_INNER else 8)
        for number in range(min(cells, self.size // 4)):
            try:
                (cell,) = struct.unpack_from(">H", page, pointers + 2 * number)
                payload = self._payload(page, cell + (4 if kind == INDEX_INNER else 0), kind)
                yield Row(_record(payload), kind == TABLE_LEAF)
            except (ValueError, IndexError, struct.error):
                continue

    def _payload(self, page: bytes, at: int, kind: int) -> bytes:
        """A row's bytes, those on overflow pages too."""
        length, at = _varint(page, at)
        if kind == TABLE_LEAF:
            _, at = _varint(page, at)
        if length > LONGEST:
            raise ValueError("no such length")
        most = self.size - 35 if kind == TABLE_LEAF else (self.size - 12) * 64 // 255 - 23
        if length <= most:
            return _bytes(page, at, length)
        least = (self.size - 12) * 32 // 255 - 23
        here = least + (length - least) % (self.size - 4)
        here = here if here <= most else least
        parts = [_bytes(page, at, here)]
        (following,) = struct.unpack_from(">I", page, at + here)
        length -= here
        while length > 0:
            overflow = self._page(following)
            parts.append(_bytes(overflow, 4, min(length, self.size - 4)))
            length -= len(parts[-1])
            (following,) = struct.unpack_from(">I", overflow)
        return b"".join(parts)


def _bytes(page: bytes, at: int, length: int) -> bytes:
    if at + length > len(page):
        raise ValueError("beyond the page")
    return page[at : at + length]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number in range(9):
        byte = data[at + number]
        if number == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + number + 1
    raise AssertionError


def _record(payload: bytes) -> tuple[Value, ...]:
    """The values of a row in SQLite's record format."""
    length, at = _varint(payload, 0)
    kinds = []
    while at < length:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Value] = []
    at = length
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise ValueError("a row of another length")
    return tuple(values)


_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(_bytes(payload, at, end - at), "big", signed=True), end
    if kind == 7:
        return struct.unpack(">d", _bytes(payload, at, 8))[0], at + 8
    if kind in (8, 9):
        return kind - 8, at
    if kind < 12:
        raise ValueError("no such kind")
    end = at + (kind - 12) // 2
    data = _bytes(payload, at, end - at)
    return (data.decode() if kind % 2 else data), end
