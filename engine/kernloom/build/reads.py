"""Which files a compiler, an assembler and a linker really read, as they say themselves.

Every program that a compiler's driver starts writes a make rule of what it reads into a named pipe:
a file would hold the rule of the last one only. A thread reads the pipes meanwhile, so that no
program waits for room in them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

_COMPILED, _ASSEMBLED, _LINKED = "kernloom-compiled", "kernloom-assembled", "kernloom-linked"
"""The same names for every command, for some compilers note their flags in what they make."""
COMPILING = ("-MD", "-MF", _COMPILED)
"""Flags that make a compiler list what it includes, system headers too."""
LINKING = (f"-Wl,--dependency-file={_LINKED}",)
"""Flags that make a linker list what it opens."""
ASSEMBLING = (f"-Wa,--MD,{_ASSEMBLED}",)
"""Flags that make a GNU assembler list what it opens; others do not know them."""
_CHUNK = 1 << 16
_NO_PIPES = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems say that hold no named pipes."""


class ReadLog:
    """What programs that work in one folder say they read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with contextlib.ExitStack() as stack:
            # Several pipes, for compilers escape spaces in names and GNU ld does not.
            self._compiled = stack.enter_context(_pipe(folder / _COMPILED))
            self._assembled = stack.enter_context(_pipe(folder / _ASSEMBLED))
            self._linked = stack.enter_context(_pipe(folder / _LINKED))
            self._ended = os.eventfd(0, os.EFD_CLOEXEC)
            stack.callback(os.close, self._ended)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
            stack.callback(self._end)
            self._cleanup = stack.pop_all()

    def files(self) -> list[str]:
        """Absolute paths of the files that compilers and linkers read, asked for when the programs
        have ended."""
        self._end()
        return self._paths([*rule_words(self._compiled.rules()), *_lines(self._linked.rules())])

    def assembled(self) -> list[str]:
        """The same of assemblers. Their lists also have the names in the line markers of the
        compiler, which need not be those of files; a relative one that leads nowhere is none."""
        self._end()
        found = self._paths(rule_words(self._assembled.rules()))
        inside = f"{self._folder}{os.sep}"
        return [path for path in found if not path.startswith(inside) or Path(path).exists()]

    @property
    def listed_assembly(self) -> bool:
        """Whether an assembler has said what it read."""
        self._end()
        return bool(self._assembled.rules())

    @property
    def intact(self) -> bool:
        """Whether nobody has deleted what the programs write to."""
        return all(pipe.path.exists() for pipe in self._pipes)

    @property
    def _pipes(self) -> tuple[_Pipe, ...]:
        return self._compiled, self._assembled, self._linked

    def _paths(self, names: Iterable[str]) -> list[str]:
        # A rule's target ends in a colon; files that have a rule of their own are listed before.
        return list(dict.fromkeys(str(self._folder / name) for name in names if name[-1:] != ":"))

    def close(self) -> None:
        self._cleanup.close()

    def _read(self) -> None:
        poll = select.poll()
        for descriptor in (self._ended, *(pipe.descriptor for pipe in self._pipes)):
            poll.register(descriptor, select.POLLIN)
        ended = False
        while not ended:
            ended = any(descriptor == self._ended for descriptor, _ in poll.poll())
            for pipe in self._pipes:
                pipe.read()

    def _end(self) -> None:
        """Have what is still in the pipes read, and no more."""
        if self._reader.is_alive():
            os.eventfd_write(self._ended, 1)
            self._reader.join()


class _Pipe:
    """One pipe with a name, and what was written to it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._written = bytearray()

    def read(self) -> None:
        """Take what is in it now."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.descriptor, _CHUNK):
                self._written += data

    def rules(self) -> str:
        written = bytes(self._written)
        # Compiler caches put a file in its place.
        with contextlib.suppress(OSError):
            if stat.S_ISREG(self.path.lstat().st_mode):
                written += self.path.read_bytes()
        return written.decode(errors="surrogateescape")


@contextlib.contextmanager
def _pipe(path: Path) -> Iterator[_Pipe]:
    """A pipe that is also open for writing: a compiler must not wait until somebody reads."""
    with contextlib.ExitStack() as stack:
        stack.callback(path.unlink, missing_ok=True)
        try:
            os.mkfifo(path)
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
        except OSError as error:
            if error.errno not in _NO_PIPES:
                raise
            descriptor, writing = os.pipe()
            stack.callback(os.close, descriptor)
            stack.callback(os.close, writing)
            os.set_blocking(descriptor, False)
            _link(path, writing, error)
        yield _Pipe(path, descriptor)


def _link(path: Path, writing: int, error: OSError) -> None:
    """Give a pipe without a name the name of a link, where there can be no named pipe."""
    path.unlink(missing_ok=True)
    try:
        path.symlink_to(f"/proc/{os.getpid()}/fd/{writing}")
    except OSError:
        raise OSError(
            error.errno,
            f"{error.strerror} (named pipes and symbolic links, by which compilers tell what "
            "they read)",
            str(path),
        ) from None


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
