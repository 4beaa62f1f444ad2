"""Which files a compiler and a linker really read, as they say themselves.

Every program that a compiler's driver starts writes a make rule of what it reads into a pipe: a
file would hold the rule of the last one only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

_PIPE_BYTES = 1 << 20


class ReadLog:
    """The pipes that the rules come through: compilers escape spaces in names, GNU ld does not."""

    def __init__(self) -> None:
        self._compiling, self._linking = _pipe(), _pipe()

    @property
    def descriptors(self) -> tuple[int, int]:
        """What the compiler must inherit."""
        return self._compiling[1], self._linking[1]

    @property
    def compiling(self) -> tuple[str, ...]:
        """Flags that make a compiler list what it includes, system headers too."""
        return ("-MD", "-MF", f"/proc/self/fd/{self._compiling[1]}")

    @property
    def linking(self) -> tuple[str, ...]:
        """Flags that make a linker list what it opens."""
        return (f"-Wl,--dependency-file=/proc/self/fd/{self._linking[1]}",)

    def files(self, folder: Path) -> list[str]:
        """Absolute paths of the files read so far, by programs that worked in `folder`."""
        names = [*rule_words(_read(self._compiling[0])), *_lines(_read(self._linking[0]))]
        # A rule's target ends in a colon; files that have a rule of their own are listed before.
        return list(dict.fromkeys(str(folder / name) for name in names if name[-1:] != ":"))

    def close(self) -> None:
        for descriptor in (*self._compiling, *self._linking):
            os.close(descriptor)


def _pipe() -> tuple[int, int]:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    # Nobody reads until the compiler has ended; the system may grant less to an ordinary user.
    with contextlib.suppress(OSError):
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return ours, theirs


def _read(descriptor: int) -> str:
    rules = b""
    with contextlib.suppress(BlockingIOError):
        while data := os.read(descriptor, _PIPE_BYTES):
            rules += data
    return rules.decode(errors="surrogateescape")


@contextlib.contextmanager
def read_log() -> Iterator[ReadLog]:
    log = ReadLog()
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
