"""Sequences of any length in bounded memory: all but the newest items are on disk."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")

BLOCK = 512
"""Items that are pickled together; objects that they share are written once."""
IN_MEMORY = 8_192
"""Items that a spool keeps in memory before it uses a file."""
READ_BACK = 4
"""Blocks from the file that stay in memory."""


class Spool(Sequence[T], Generic[T]):
    """An append-only sequence. Items read from the file are equal copies, not the same objects.

    The file has no name: no other process can change it, and it disappears with this one.
    """

    def __init__(self, items: Iterable[T] = (), in_memory: int | None = None) -> None:
        self._blocks: list[list[T] | int] = []
        """Full blocks: the items, or their offset in the file."""
        self._last: list[T] = []
        self._written = 0
        """Number of leading blocks that are in the file."""
        self._read_back: OrderedDict[int, list[T]] = OrderedDict()
        self._kept = IN_MEMORY if in_memory is None else in_memory
        for item in items:
            self.append(item)

    def append(self, item: T) -> None:
        self._last.append(item)
        if len(self._last) == BLOCK:
            self._blocks.append(self._last)
            self._last = []
            if (len(self._blocks) - self._written) * BLOCK > self._kept:
                self._write_oldest()

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._last)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(place)
        block, number = divmod(place, BLOCK)
        return self._block(block)[number]

    def __iter__(self) -> Iterator[T]:
        for block in range(len(self._blocks)):
            yield from self._block(block)
        yield from self._last

    def _block(self, number: int) -> list[T]:
        if number == len(self._blocks):
            return self._last
        block = self._blocks[number]
        if not isinstance(block, int):
            return block
        if number not in self._read_back:
            self._file.seek(block)
            self._read_back[number] = pickle.load(self._file)  # noqa: S301 (our own)
            if len(self._read_back) > READ_BACK:
                self._read_back.popitem(last=False)
        self._read_back.move_to_end(number)
        return self._read_back[number]

    def _write_oldest(self) -> None:
        try:
            if not self._written:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the spool)
            start = self._file.seek(0, os.SEEK_END)
            pickle.dump(self._blocks[self._written], self._file, pickle.HIGHEST_PROTOCOL)
            self._file.flush()
        except OSError:
            # On a full disk use more memory rather than lose items.
            self._kept *= 2
        else:
            self._blocks[self._written] = start
            self._written += 1


class Reordered(Sequence[T], Generic[T]):
    """Items of another sequence in a different order."""

    def __init__(self, items: Sequence[T], places: Sequence[int]) -> None:
        self._items = items
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self._items[number] for number in self._places[place]]
        return self._items[self._places[place]]
