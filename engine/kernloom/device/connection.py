"""A runner process, the socket to it, the window shared with it and the folder that it works in:
they start and end together."""

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

SHORTEST = HEADER.size + layout(Response).fixed.size
"""Bytes of an answer that has nothing more to say."""


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
        """`command` starts the runner; `inherited` are the files it gets beside its own three.
        `scratch` goes back to its pool, or is removed, at the end."""
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
        """TimeoutError when the other side does not listen."""
        self._wait_until(deadline, socket.SO_SNDTIMEO)
        try:
            self._socket.sendall(data)
        except BlockingIOError:
            raise TimeoutError from None

    def receive(self, deadline: float, following: int = 0) -> tuple[Header, Message]:
        """The next message; EOFError when the other side is gone, TimeoutError when it is late.

        Where others are `following`, to wake up once for all of them is enough.
        """
        have = len(self._received)
        if following and have < HEADER.size:
            self._received += self._receive(deadline, (1 + following) * SHORTEST - have, all=True)
        self._receive_at_least(HEADER.size, deadline)
        header = unpack_header(self._received)
        self._receive_at_least(header.size, deadline)
        data = bytes(self._received[: header.size])
        del self._received[: header.size]
        return header, unpack_body(header, data)

    def receive_rest(self, deadline: float) -> None:
        """Wait until the other side is gone, whatever it still says."""
        with contextlib.suppress(EOFError):
            while True:
                self._receive(deadline, 1 << 16, all=True)

    def _receive_at_least(self, nbytes: int, deadline: float) -> None:
        while len(self._received) < nbytes:
            self._received += self._receive(deadline, 1 << 16)

    def _receive(self, deadline: float, nbytes: int, *, all: bool = False) -> bytes:
        """What there is; or `all` of so many bytes, unless no more come in time or ever."""
        self._wait_until(deadline, socket.SO_RCVTIMEO)
        try:
            data = self._socket.recv(nbytes, socket.MSG_WAITALL if all else 0)
        except BlockingIOError:
            raise TimeoutError from None
        if not data:
            raise EOFError
        return data

    def _wait_until(self, deadline: float, option: int) -> None:
        """The system keeps the time: Python would ask it once more for each call."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        microseconds = max(1, int(remaining * 1e6))
        limit = struct.pack("ll", microseconds // 1_000_000, microseconds % 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def end(self) -> int:
        """Kill what still runs and reap it; how the process ended. Safe more than once."""
        returncode = self.process.end()
        if not self._ended:
            self._ended = True
            self._socket.close()
            # 0: nothing of what the kernels started was left. After any other ending something
            # that nobody knows of could still write to the window.
            if returncode == 0:
                self._windows.give_back(self.window)
                self._scratch.give_back()
            else:
                self.window.discard()
                self._scratch.remove()
        return returncode
