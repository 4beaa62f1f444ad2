"""Temporary folders of builds, all below build/tmp, and disk problems there."""

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
    """A private folder for the duration of a build."""
    with temporary.own_folder(build / "tmp") as folder:
        yield folder


@contextlib.contextmanager
def scratch_folder(build: Path) -> Iterator[Path | None]:
    """The same for kernels to run in; None if nothing can be written, as on a cluster node with
    read-only access."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(workspace(build))
        except OSError:
            folder = None
        yield folder


def sweep(build: Path) -> None:
    """Remove the folders of killed processes, without making a new one."""
    temporary.sweep(build / "tmp")


_DISK_MESSAGES = {
    code: os.strerror(code)
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EIO)
}


def disk_problem(message: str) -> str | None:
    """The disk problem in a compiler's message, if there is one."""
    if "File size limit exceeded" in message:
        return _DISK_MESSAGES[errno.EFBIG]
    says = [text for code, text in _DISK_MESSAGES.items() if code != errno.EACCES]
    return next((text for text in says if text in message), None)


def reports_missing_file(message: str, folder: Path) -> bool:
    """Whether a program's message reports a missing file below `folder`."""
    gone = os.strerror(errno.ENOENT)
    return any(gone in line and f"{folder}{os.sep}" in line for line in message.splitlines())


def unwritable(build: Path, reason: str) -> BuildError:
    return BuildError(
        f"cannot write below {build}: {reason}",
        hint="Make room there, or make the folder writable, and run the command again.",
    )
