"""Which files a compiler and a linker really read, as they say themselves.

Every program that a compiler's driver starts writes a make rule of what it reads into a named pipe:
a file would hold the rule of the last one only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

_PIPE_BYTES = 1 << 20
_COMPILED, _LINKED = "kernloom-compiled", "kernloom-linked"
"""The same names for every command, for some compilers note their flags in what they make."""
COMPILING = ("-MD", "-MF", _COMPILED)
"""Flags that make a compiler list what it includes, system headers too."""
LINKING = (f"-Wl,--dependency-file={_LINKED}",)
"""Flags that make a linker list what it opens."""


class ReadLog:
    """What programs that work in one folder say they read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Two pipes, for compilers escape spaces in names and GNU ld does not.
        self._compiled, self._linked = _pipe(folder / _COMPILED), _pipe(folder / _LINKED)

    def files(self) -> list[str]:
        """Absolute paths of the files read so far."""
        names = [*rule_words(_read(self._compiled)), *_lines(_read(self._linked))]
        # A rule's target ends in a colon; files that have a rule of their own are listed before.
        return list(dict.fromkeys(str(self._folder / name) for name in names if name[-1:] != ":"))

    def close(self) -> None:
        for descriptor in (self._compiled, self._linked):
            os.close(descriptor)
        for name in (_COMPILED, _LINKED):
            (self._folder / name).unlink(missing_ok=True)


def _pipe(path: Path) -> int:
    os.mkfifo(path)
    # Open for writing, too: a compiler must not wait until somebody reads.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    # Nobody reads until it has ended; the system may grant less to an ordinary user.
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return descriptor


def _read(descriptor: int) -> str:
    rules = b""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(descriptor, _PIPE_BYTES):
            rules += data
    return rules.decode(errors="surrogateescape")


@contextlib.contextmanager
def read_log(folder: Path) -> Iterator[ReadLog]:
    log = ReadLog(folder)
    try:
        yield log
    finally:
        log.close()


def rule_words(rules: str) -> list[str]:
    """The words of a make rule, as compilers and linkers write them."""
    words = re.findall(r"(?:\\[^\n]|[^\s\\])+", rules.replace("\\\n", " "))
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]


def _lines(rules: str) -> Iterator[str]:
    """The names in a linker's rule, one on each line; LLD escapes them, GNU ld and gold do not."""
    for line in rules.splitlines():
        name = line.strip().removesuffix("\\").rstrip()
        if name:
            yield name if "\\" not in name or Path(name).exists() else rule_words(name)[0]
