"""Folders for work in progress.

Each is locked for as long as its process lives, so that the next process can tell those that a
killed one has left, and removes them.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

_NAMES = 100
"""How many names are tried for a user's folder, where others have taken the first ones."""
_ATTEMPTS = 3


@contextlib.contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A new folder below `parent`, gone afterwards; with it those that killed processes left."""
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent):
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
        # Held for as long as this process lives: what says that the folder is in use.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    process = os.getpid()
    try:
        yield folder
    finally:
        # A fork of this process that ends leaves the folder alone.
        if process == os.getpid():
            remove_folder(folder)
        os.close(handle)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """The same among the system's temporary files."""
    with own_folder(_user_folder()) as folder:
        yield folder


def process_folder() -> Path:
    """A folder of this process among the system's temporary files, removed when it ends."""
    with _making:
        asked = (os.getpid(), tempfile.gettempdir())
        found = _made.get(asked)
        # Meanwhile somebody may have cleaned up.
        if found is None or not found.is_dir():
            stack = contextlib.ExitStack()
            found = _made[asked] = stack.enter_context(temporary_folder())
            atexit.register(stack.close)
        return found


_making = threading.Lock()
_made: dict[tuple[int, str], Path] = {}
"""By process, for a fork has its own, and by the system's folder for temporary files."""


def sweep(parent: Path) -> None:
    """Remove what killed processes have left, where nothing else is to be done."""
    with contextlib.suppress(OSError):
        if any(parent.iterdir()):
            with locked(parent):
                _sweep(parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that can be done."""
    # A program that is being killed may still write a last file into it.
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        permit(folder)


def permit(folder: Path) -> None:
    """Give the owner all rights to a folder and those below it: a kernel may have taken them."""
    waiting = [str(folder)]
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):
            _permit_one(current)
            with os.scandir(current) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def _permit_one(folder: str) -> None:
    # By a handle, which is never that of what a link leads to.
    handle = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(f"/proc/self/fd/{handle}").chmod(stat.S_IRWXU)
    finally:
        os.close(handle)


def _user_folder() -> Path:
    """The folder of this user among the system's temporary files.

    Anybody may make files there: one that is not this user's alone is passed over.
    """
    top, user = Path(tempfile.gettempdir()), os.geteuid()
    for number in range(1, _NAMES + 1):
        folder = top / (f"kernloom-{user}" if number == 1 else f"kernloom-{user}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=stat.S_IRWXU)
        status = folder.lstat()
        if status.st_mode == stat.S_IFDIR | stat.S_IRWXU and status.st_uid == user:
            return folder
    raise FileExistsError(f"others have taken the names kernloom-{user} to {folder.name} in {top}")


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


def _sweep(parent: Path) -> None:
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):
            handle = _opened(folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(folder)
            finally:
                os.close(handle)


def _opened(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        _permit_one(str(folder))
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
