"""The rows that stand on the pages of a SQLite file, read without SQLite, page by page.

SQLite finds a row by way of others and stops where one is damaged. Trials are only ever added,
never changed, so whatever row of one can be read on any page, or on any version of it in the
write-ahead log, is a good one; how the pages hang together does not matter. Of what is changed and
removed, only the latest version of a page tells.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernloom.store.log import FRAME_HEADER, HEADER, PAGE_SIZE, is_log, page_size

MAGIC = b"SQLite format 3\0"
TABLE_LEAF, INDEX_LEAF, INDEX_INNER, TABLE_INNER = 0x0D, 0x0A, 0x02, 0x05
LOCKS = 1 << 30
"""The page with this byte is for locks; nothing is ever written there."""
LONGEST = 1 << 28
"""No row is this long; a length that says so is damage."""

Value = int | float | str | bytes | None


@dataclass(frozen=True)
class Row:
    """A row, and where it stands."""

    values: tuple[Value, ...]
    table: bool
    """In a table, not in an index."""
    latest: bool
    """On the latest version of a page that is in use."""


@dataclass(frozen=True)
class _Frame:
    """A page as it is in the log."""

    number: int
    commit: bool
    salts: bytes
    page: bytes


class Pages:
    """The pages of a file and of the log beside it."""

    def __init__(self, path: Path, log: Path) -> None:
        self._data = path.read_bytes() if path.is_file() else b""
        self._log = log.read_bytes() if log.is_file() else b""
        self.size = self._page_size()
        self._frames = self._read_frames()
        self._latest = {self._frames[at].number: at for at in self._committed()}
        """Number -> frame, of the pages in the log."""
        self._free = self._free_pages()
        self._followed: set[int] = set()
        """Pages that a row goes on to."""
        self._unread: set[int] = set()
        """Pages in use on which not every row could be read, if there are rows on them at all."""

    def is_store(self) -> bool:
        """Whether this was ever a file of SQLite's."""
        return self._data.startswith(MAGIC) or is_log(self._log)

    def rows(self) -> Iterator[Row]:
        """Whatever can be read, some of it more than once."""
        for start in range(0, len(self._data), self.size):
            page = self._data[start : start + self.size]
            number = start // self.size + 1
            yield from self._rows_on(page, number, number not in self._latest)
        for at, frame in enumerate(self._frames):
            yield from self._rows_on(frame.page, frame.number, self._latest.get(frame.number) == at)

    def has_gaps(self) -> bool:
        """Whether rows may be missing of which nothing is known; to be asked after all `rows`."""
        whole = len(self._data) // self.size
        numbers = range(1, self._count() + 1)
        missing = any(number > whole and number not in self._latest for number in numbers)
        return missing or bool(self._unread - self._followed)

    def _count(self) -> int:
        """How many pages there should be, where the first of them says so."""
        first = self._page(1)
        # Programs from before the count was kept leave these two different.
        if not first.startswith(MAGIC) or first[24:28] != first[92:96]:
            return 0
        (count,) = struct.unpack_from(">I", first, 28)
        return int(count)

    def _page_size(self) -> int:
        if not self._data.startswith(MAGIC):
            return page_size(self._log[:HEADER])
        (size,) = struct.unpack_from(">H", self._data, 16)
        size = 65536 if size == 1 else size
        return size if 512 <= size <= 65536 and not size & (size - 1) else PAGE_SIZE

    def _read_frames(self) -> list[_Frame]:
        """All of them, also those after a damaged one."""
        whole = FRAME_HEADER + self.size
        frames = []
        for start in range(HEADER, len(self._log) - whole + 1, whole):
            number, pages = struct.unpack_from(">II", self._log, start)
            salts = self._log[start + 8 : start + 16]
            page = self._log[start + FRAME_HEADER : start + whole]
            frames.append(_Frame(number, pages != 0, salts, page))
        return frames

    def _committed(self) -> list[int]:
        """The frames of the log's last use, up to its last commit; older ones come after them."""
        salts = {frame.salts for frame in self._frames}
        ours = self._log[16:24]
        if self._frames and ours not in salts:
            ours = self._frames[0].salts
        mine = [at for at, frame in enumerate(self._frames) if frame.salts == ours]
        last = max((at for at in mine if self._frames[at].commit), default=-1)
        return [at for at in mine if at <= last]

    def _free_pages(self) -> set[int]:
        """Pages that are not in use, as far as that is known; old rows may stand on them."""
        free: set[int] = set()
        first = self._page(1)
        if not first.startswith(MAGIC):
            return free
        (trunk,) = struct.unpack_from(">I", first, 32)
        while trunk and trunk not in free:
            free.add(trunk)
            page = self._page(trunk)
            if len(page) < self.size:
                break
            following, count = struct.unpack_from(">II", page)
            free.update(struct.unpack_from(f">{min(count, self.size // 4 - 2)}I", page, 8))
            trunk = following
        return free

    def _page(self, number: int) -> bytes:
        start = (number - 1) * self.size
        at = self._latest.get(number)
        return self._data[start : start + self.size] if at is None else self._frames[at].page

    def _rows_on(self, page: bytes, number: int, latest: bool) -> Iterator[Row]:
        header = 100 if number == 1 else 0
        latest = latest and number not in self._free
        if len(page) < header + 12:
            return
        kind = page[header]
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_INNER):
            if latest and kind != TABLE_INNER and number != LOCKS // self.size + 1:
                self._unread.add(number)
            return
        (cells,) = struct.unpack_from(">H", page, header + 3)
        pointers = header + (12 if kind == INDEX_INNER else 8)
        for which in range(min(cells, self.size // 4)):
            try:
                (cell,) = struct.unpack_from(">H", page, pointers + 2 * which)
                payload = self._payload(page, cell + (4 if kind == INDEX_INNER else 0), kind)
                yield Row(_record(payload), kind == TABLE_LEAF, latest)
            except (ValueError, IndexError, struct.error):
                if latest:
                    self._unread.add(number)

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
            self._followed.add(following)
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
