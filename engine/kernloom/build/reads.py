"""Files read by compiler, assembler and linker, as reported by themselves.

Each program that a compiler driver starts writes a make rule of the files it reads to a named pipe:
a regular file would keep only the last rule. A thread drains the pipes, so that no program blocks
on a full one. The programs inherit the pipes: they must end even if this process is killed, and
opening a pipe that nobody reads would block for ever.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

_COMPILED, _ASSEMBLED, _LINKED = "kernloom-compiled", "kernloom-assembled", "kernloom-linked"
"""Equal names for every command, since some compilers record their flags in the output."""
COMPILING = ("-MD", "-MF", _COMPILED)
"""Flags that make a compiler list included files, also system headers."""
LINKING = (f"-Wl,--dependency-file={_LINKED}",)
"""Flags that make a linker list opened files."""
ASSEMBLING = (f"-Wa,--MD,{_ASSEMBLED}",)
"""Flags that make a GNU assembler list opened files; others do not support them."""
PIPE_BYTES = 1 << 20
"""Size of a pipe: room for all rules of one command, if this process is killed."""
_CHUNK = 1 << 16
_ESCAPED = re.compile(r"(\\*)\\([\s#:])")
"""A character that a backslash escapes; backslashes mean themselves, but are doubled before it."""
_NO_PIPES = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems without named pipes."""


class ReadLog:
    """Files that programs in one folder report to have read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with contextlib.ExitStack() as stack:
            # Separate pipes, since compilers escape spaces in names and GNU ld does not.
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
        """Absolute paths of the files that compilers and linkers read; call after the programs
        have ended."""
        self._end()
        return self._paths([*rule_words(self._compiled.rules()), *_lines(self._linked.rules())])

    def assembled(self) -> list[str]:
        """The same for assemblers. Their lists include names from the compiler's line markers,
        which need not be files; relative names that do not exist are dropped."""
        self._end()
        found = self._paths(rule_words(self._assembled.rules()))
        inside = f"{self._folder}{os.sep}"
        return [path for path in found if not path.startswith(inside) or Path(path).exists()]

    @property
    def listed_assembly(self) -> bool:
        """Whether an assembler has listed its files."""
        self._end()
        return bool(self._assembled.rules())

    @property
    def inherited(self) -> tuple[int, ...]:
        """Descriptors to pass to the programs."""
        return tuple(pipe.descriptor for pipe in self._pipes)

    @property
    def intact(self) -> bool:
        """Whether the pipes still exist."""
        return all(pipe.path.exists() for pipe in self._pipes)

    @property
    def _pipes(self) -> tuple[_Pipe, ...]:
        return self._compiled, self._assembled, self._linked

    def _paths(self, names: Iterable[str]) -> list[str]:
        # The target of a rule ends in a colon; files with a rule of their own were listed before.
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
        """Read what is left in the pipes, and stop."""
        if self._reader.is_alive():
            os.eventfd_write(self._ended, 1)
            self._reader.join()


class _Pipe:
    """A named pipe, and the data written to it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._written = bytearray()

    def read(self) -> None:
        """Read the available data."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.descriptor, _CHUNK):
                self._written += data

    def rules(self) -> str:
        written = bytes(self._written)
        # Compiler caches replace the pipe by a file.
        with contextlib.suppress(OSError):
            if stat.S_ISREG(self.path.lstat().st_mode):
                written += self.path.read_bytes()
        return written.decode(errors="surrogateescape")


@contextlib.contextmanager
def _pipe(path: Path) -> Iterator[_Pipe]:
    """A pipe that is also open for writing, so that a compiler does not wait for a reader."""
    with contextlib.ExitStack() as stack:
        stack.callback(path.unlink, missing_ok=True)
        try:
            os.mkfifo(path)
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
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
    """Link a name to an anonymous pipe, where named pipes are not supported."""
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
    return [_ESCAPED.sub(_unescaped, word).replace("$$", "$") for word in words]


def _unescaped(found: re.Match[str]) -> str:
    return found[1][: len(found[1]) // 2] + found[2]


def _lines(rules: str) -> Iterator[str]:
    """The names in a linker's rule, one per line; LLD escapes them, GNU ld and gold do not."""
    for line in rules.splitlines():
        name = line.strip().removesuffix("\\").rstrip()
        if name:
            # By the folder: temporary files are gone by now.
            plain = "\\" not in name or Path(name).parent.exists()
            yield name if plain else rule_words(name)[0]
