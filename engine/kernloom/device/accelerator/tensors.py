"""Tensors in an accelerator's memory, freed when nobody uses them any more."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType

from kernloom.device.contract import Buffer
from kernloom.device.messages import Policy


class DeviceTensor:
    """Memory that was placed on PEs by a policy; it is unmapped everywhere exactly once.

    Leaving the `with` block frees it. One that is garbage collected is freed by the session's next
    operation. A second close does nothing.
    """

    def __init__(
        self,
        buffer: Buffer,
        policy: Policy,
        free: Callable[[Buffer], None],
        abandon: Callable[[Buffer], None],
    ) -> None:
        """`free` frees the buffer now; `abandon` can be called in the middle of anything."""
        self.buffer = buffer
        """The buffer, for all operations of the session."""
        self.policy = policy
        self._free = free
        self._finalizer = weakref.finalize(self, abandon, buffer)
        # The session's end frees all memory, and at exit there is no session to speak with.
        self._finalizer.atexit = False

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        if self._finalizer.detach():
            self._free(self.buffer)

    def __enter__(self) -> DeviceTensor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
