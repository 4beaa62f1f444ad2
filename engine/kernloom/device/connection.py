"""A runner process with its socket, its shared window and its scratch folder, which all start and
end together."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence

from kernloom.device.messages import (
    HEADER,
    Header,
    Message,
    Response,
    layout,
    unpack_body,
    unpack_header,
)
from kernloom.device.process import Process, above_stdio
from kernloom.device.scratch import Scratch
from kernloom.device.window import WindowPool

MIN_RESPONSE_BYTES = HEADER.size + layout(Response).fixed.size
"""Size of a response that carries no text and no samples."""


class Connection:
    """Sends and receives whole messages until `end`, which leaves nothing behind."""

    def __init__(
        self,
        command: Sequence[str],
        windows: WindowPool,
        scratch: Scratch,
        inherited: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`command` starts the runner; it inherits `inherited` beside its three standard files.
        `scratch` is returned to its pool, or removed, at the end."""
        self._windows = windows
        self._scratch = scratch
        self._received = bytearray()
        self._ended = False
        self.window = windows.take()
        self._socket, theirs = socket.socketpair()
        channel = above_stdio(theirs.detach())
        arguments = (
            *command,
            f"--channel={channel}",
            f"--window={self.window.descriptor}",
            f"--window-bytes={self.window.nbytes}",
        )
        try:
            own = (channel, self.window.descriptor, scratch.descriptor)
            self.process = Process(arguments, (*own, *inherited), environment)
        except BaseException:
            self._socket.close()
            windows.give_back(self.window)
            scratch.remove()
            raise
        finally:
            os.close(channel)

    def send(self, data: bytes, deadline: float) -> None:
        """Send all bytes; TimeoutError if the runner does not read them by the deadline."""
        self._wait_until(deadline, socket.SO_SNDTIMEO)
        try:
            self._socket.sendall(data)
        except BlockingIOError:
            raise TimeoutError from None

    def receive(self, deadline: float, following: int = 0) -> tuple[Header, Message]:
        """The next message; EOFError if the runner has closed the socket, TimeoutError if late.

        With `following` more messages expected, one wake-up serves for all of them.
        """
        have = len(self._received)
        if following and have < HEADER.size:
            self._received += self._receive(
                deadline, (1 + following) * MIN_RESPONSE_BYTES - have, all=True
            )
        self._receive_at_least(HEADER.size, deadline)
        header = unpack_header(self._received)
        self._receive_at_least(header.size, deadline)
        data = bytes(self._received[: header.size])
        del self._received[: header.size]
        return header, unpack_body(header, data)

    def receive_rest(self, deadline: float) -> None:
        """Wait until the runner closes the socket, and ignore what it still sends."""
        with contextlib.suppress(EOFError):
            while True:
                self._receive(deadline, 1 << 16, all=True)

    def _receive_at_least(self, nbytes: int, deadline: float) -> None:
        while len(self._received) < nbytes:
            self._received += self._receive(deadline, 1 << 16)

    def _receive(self, deadline: float, nbytes: int, *, all: bool = False) -> bytes:
        """The bytes available, or with `all` exactly `nbytes`, unless the deadline or the end comes
        first."""
        self._wait_until(deadline, socket.SO_RCVTIMEO)
        try:
            data = self._socket.recv(nbytes, socket.MSG_WAITALL if all else 0)
        except BlockingIOError:
            raise TimeoutError from None
        if not data:
            raise EOFError
        return data

    def _wait_until(self, deadline: float, option: int) -> None:
        """Set a socket timeout in the kernel: Python's own costs another system call per
        operation."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        microseconds = max(1, int(remaining * 1e6))
        limit = struct.pack("ll", microseconds // 1_000_000, microseconds % 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def end(self) -> int:
        """Kill and reap the process; returns its exit status. Safe to call more than once."""
        returncode = self.process.end()
        if not self._ended:
            self._ended = True
            self._socket.close()
            # 0 means that no process started by a kernel was left. After any other ending an
            # unknown process could still write to the window.
            if returncode == 0:
                self._windows.give_back(self.window)
                self._scratch.give_back()
            else:
                self.window.discard()
                self._scratch.remove()
        return returncode
