"""An interactive program in a terminal, typed to as a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

PATIENCE_S = 30
SIZE = (40, 150)
"""Lines and columns."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z@]|\x1b[=>]|\x1b\][^\x07]*\x07|\r|\x07")


class Terminal:
    """A terminal with one program in it."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._pid, self._end = pty.fork()
        if not self._pid:
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(env))
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        self._seen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._end)

    def type(self, text: str) -> None:
        self._seen = ""
        os.write(self._end, text.encode())

    def wait_for(self, *expected: str) -> str:
        """What has been shown since the last typing, once it holds all of these texts."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(text in _CONTROL.sub("", self._seen) for text in expected):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._end], [], [], left)[0]:
                raise AssertionError(f"{expected} not in {_CONTROL.sub('', self._seen)!r}")
            try:
                self._seen += os.read(self._end, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended: {_CONTROL.sub('', self._seen)!r}") from None
        return _CONTROL.sub("", self._seen)
