"""Tensors that change between the runs of a launch, as the message Vary says."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from kernloom.device.messages import Change, Moment, Piece, Status, Vary
from kernloom.device.opencl.memory import Block, Memory, RequestError

POISON = 0xFF
MAX_PIECES = 4096


@dataclass
class _Piece:
    """Bytes that change; `own` and `other` are their contents in both data sets."""

    block: Block
    offset: int
    change: Change
    own: Any
    other: Any = None
    exchanged: bool = False

    @property
    def content(self) -> Any:
        return self.other if self.exchanged else self.own


class Variation:
    """The pieces, buffers and copies of one launch."""

    def __init__(
        self, message: Vary, memory: Memory, queue: Any, view: Callable[[int, int], Any]
    ) -> None:
        """`view` gives so many bytes of the window, by their offset."""
        if len(message.pieces) > MAX_PIECES:
            raise RequestError(
                Status.INVALID, f"{len(message.pieces)} pieces are more than {MAX_PIECES}"
            )
        self.random = random.Random(message.secret)  # noqa: S311 (its seed is a secret)
        self._queue = queue
        self._view = view
        pieces = [self._piece(piece, memory) for piece in message.pieces]
        self._exchanged, self._restored, self._poisoned = (
            [piece for piece in pieces if piece.change == change] for change in Change
        )
        self._changes = 0
        self._outputs = [memory.find(span.address, span.bytes)[0] for span in message.poisoned]
        self._copies = [
            (memory.find(copy.address, copy.bytes)[0], view(copy.offset, copy.bytes), copy)
            for copy in message.snapshots
        ]

    def _piece(self, given: Piece, memory: Memory) -> _Piece:
        block, offset = memory.find(given.address, given.bytes)
        change = Change(given.change)
        if change == Change.POISON:
            return _Piece(block, offset, change, np.full(given.bytes, POISON, np.uint8))
        own = self._view(given.own, given.bytes).copy()
        if change == Change.RESTORE:
            return _Piece(block, offset, change, own)
        return _Piece(block, offset, change, own, self._view(given.other, given.bytes).copy())

    def change(self) -> list[Any]:
        """Enqueue a change of one piece of each kind; returns its events."""
        changed = []
        number, self._changes = self._changes, self._changes + 1
        if self._exchanged:
            # A Gray code, so that no mixture of both data sets returns for a long time.
            digit = (self._changes & -self._changes).bit_length() - 1
            piece = self._exchanged[min(digit, len(self._exchanged) - 1)]
            piece.exchanged = not piece.exchanged
            changed.append(piece)
        for pieces in (self._restored, self._poisoned):
            if pieces:
                changed.append(pieces[number % len(pieces)])
        return self._written(changed)

    def refresh(self) -> list[Any]:
        """Enqueue as many writes as a change does, with the contents that are there already, so
        that a kernel cannot distinguish the two."""
        if not self._exchanged:
            return []
        kinds = (self._exchanged, self._restored, self._poisoned)
        piece = self.random.choice(self._exchanged)
        return self._written([piece] * sum(bool(kind) for kind in kinds))

    def unmix(self) -> None:
        """Restore the data set of the launch, and poison all pieces of outputs."""
        mixed = [piece for piece in self._exchanged if piece.exchanged]
        for piece in mixed:
            piece.exchanged = False
        events = self._written([*mixed, *self._restored, *self._poisoned])
        if events:
            cl.wait_for_events(events)

    def poison(self) -> None:
        """Poison all outputs that are not inputs."""
        pattern = np.full(1, POISON, np.uint8)
        for block in self._outputs:
            cl.enqueue_fill_buffer(self._queue, block.buffer, pattern, 0, block.nbytes).wait()

    def copy(self, moment: Moment) -> None:
        """Copy tensors into the window, before or after the run that is proven."""
        for block, place, copy in self._copies:
            if copy.moment != moment:
                continue
            if moment == Moment.BEFORE and block.host is not None:
                place[:] = block.host
            else:
                cl.enqueue_copy(self._queue, place, block.buffer)

    def _written(self, pieces: Sequence[_Piece]) -> list[Any]:
        events = []
        for piece in pieces:
            if piece.block.host is None or piece.change == Change.POISON:
                ends = (piece.block.buffer, piece.content)
                event = cl.enqueue_copy(
                    self._queue, *ends, dst_offset=piece.offset, is_blocking=False
                )
                events.append(event)
            else:
                # Transfers that were enqueued before still read the host's copy.
                self._queue.finish()
                end = piece.offset + piece.own.nbytes
                piece.block.host[piece.offset : end] = piece.content
        return events
