"""Folders for work in progress, all under build/tmp; those of dead processes are swept."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernloom.errors import BuildError


@contextlib.contextmanager
def workspace(build: Path) -> Iterator[Path]:
    """A folder of one's own for the time of a build."""
    tmp = build / "tmp"
    tmp.mkdir(parents=True, exist_ok=True)
    with locked(tmp):
        _sweep(tmp)
        folder = Path(tempfile.mkdtemp(dir=tmp))
        # Held for as long as this process lives: what says that the folder is in use.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(handle)


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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone on `path` (a folder, or a file that is made), waiting for others."""
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    handle = os.open(path, flags, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sweep(build: Path) -> None:
    """Remove what killed processes have left, where nothing else is to be done."""
    tmp = build / "tmp"
    with contextlib.suppress(OSError):
        if any(tmp.iterdir()):
            with locked(tmp):
                _sweep(tmp)


def _sweep(tmp: Path) -> None:
    for folder in tmp.iterdir():
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        except OSError:
            continue
        finally:
            os.close(handle)


def _remove(folder: Path) -> None:
    # A compiler that is being killed may still write a last file into it.
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


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
