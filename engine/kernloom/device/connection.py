"""A runner process, the socket to it and the window shared with it: they start and end together."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence

from kernloom.device.messages import HEADER, Header, Message, unpack, unpack_header
from kernloom.device.process import Process, above_stdio
from kernloom.device.window import WindowPool


class Connection:
    """Sends and receives whole messages until `end`, which leaves nothing behind."""

    def __init__(
        self,
        command: Sequence[str],
        windows: WindowPool,
        inherited: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        data_limit: int = 0,
    ) -> None:
        """`command` starts the runner; `inherited` are the files it gets beside its own two."""
        self._windows = windows
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
            self.process = Process(
                arguments, (channel, self.window.descriptor, *inherited), environment, data_limit
            )
        except BaseException:
            self._socket.close()
            windows.give_back(self.window)
            raise
        finally:
            os.close(channel)

    def send(self, data: bytes, deadline: float) -> None:
        self._wait_until(deadline)
        self._socket.sendall(data)

    def receive(self, deadline: float) -> tuple[Header, Message]:
        """The next message; EOFError when the other side is gone, TimeoutError when it is late."""
        self._receive_at_least(HEADER.size, deadline)
        size = unpack_header(self._received).size
        self._receive_at_least(size, deadline)
        data = bytes(self._received[:size])
        del self._received[:size]
        return unpack(data)

    def _receive_at_least(self, nbytes: int, deadline: float) -> None:
        while len(self._received) < nbytes:
            self._wait_until(deadline)
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._received += data

    def _wait_until(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining)

    def end(self) -> int:
        """Kill what still runs and reap it; how the process ended. Safe more than once."""
        returncode = self.process.kill()
        if not self._ended:
            self._ended = True
            self._socket.close()
            # After any other ending something may still be writing to it.
            if returncode == 0:
                self._windows.give_back(self.window)
        return returncode
