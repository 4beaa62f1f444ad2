"""Tensors in an accelerator's memory, freed when nobody uses them any more."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType

from kernloom.device.contract import Buffer
from kernloom.device.messages import Policy


class DeviceTensor:
    """Memory that was placed on PEs by a policy; it is unmapped everywhere exactly once.

    Leaving the `with` block frees it, and so does its garbage collection. A second close does
    nothing.
    """

    def __init__(self, buffer: Buffer, policy: Policy, free: Callable[[], None]) -> None:
        self.buffer = buffer
        """The buffer, for all operations of the session."""
        self.policy = policy
        self._finalizer = weakref.finalize(self, free)
        # The session's end frees all memory, and at exit there is no session to speak with.
        self._finalizer.atexit = False

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> DeviceTensor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
