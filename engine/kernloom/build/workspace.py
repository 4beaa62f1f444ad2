"""Folders for work in progress, all under build/tmp, and what can be wrong with the disk there."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from kernloom.base import temporary
from kernloom.base.errors import BuildError


@contextlib.contextmanager
def workspace(build: Path) -> Iterator[Path]:
    """A folder of one's own for the time of a build."""
    with temporary.own_folder(build / "tmp") as folder:
        yield folder


@contextlib.contextmanager
def scratch_folder(build: Path) -> Iterator[Path | None]:
    """The same for kernels to run in; None where nothing can be written, as on a node of a cluster
    that only reads what was built."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(workspace(build))
        except OSError:
            folder = None
        yield folder


def sweep(build: Path) -> None:
    """Remove what killed processes have left, where nothing else is to be done."""
    temporary.sweep(build / "tmp")


_DISK_SAYS = {
    code: os.strerror(code)
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EIO)
}


def disk_trouble(message: str) -> str | None:
    """What a compiler's message says about the disk, if that is its trouble."""
    if "File size limit exceeded" in message:
        return _DISK_SAYS[errno.EFBIG]
    says = [text for code, text in _DISK_SAYS.items() if code != errno.EACCES]
    return next((text for text in says if text in message), None)


def says_deleted(message: str, folder: Path) -> bool:
    """Whether a program's message says that a file below `folder` is gone."""
    gone = os.strerror(errno.ENOENT)
    return any(gone in line and f"{folder}{os.sep}" in line for line in message.splitlines())


def broken(build: Path, reason: str) -> BuildError:
    return BuildError(
        f"cannot write below {build}: {reason}",
        hint="Make room there, or make the folder writable, and run the command again.",
    )
