"""Temporary folders.

Each is locked for as long as its process lives, so that later processes recognise and remove the
folders of killed ones.
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
"""Number of names tried for a user's folder if other users own the first ones."""
_ATTEMPTS = 3


@contextlib.contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A new folder below `parent`, removed on exit; removes folders of killed processes, too."""
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent):
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
        # This lock, held until the process ends, marks the folder as in use.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    process = os.getpid()
    try:
        yield folder
    finally:
        # A forked child that ends must not remove the folder.
        if process == os.getpid():
            remove_folder(folder)
        os.close(handle)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """The same below the system's temporary folder."""
    with own_folder(_user_folder()) as folder:
        yield folder


def process_folder() -> Path:
    """This process's folder below the system's temporary folder, removed when the process ends."""
    with _making:
        asked = (os.getpid(), tempfile.gettempdir())
        found = _made.get(asked)
        # A cleanup job may have removed it.
        if found is None or not found.is_dir():
            stack = contextlib.ExitStack()
            found = _made[asked] = stack.enter_context(temporary_folder())
            atexit.register(stack.close)
        return found


_making = threading.Lock()
_made: dict[tuple[int, str], Path] = {}
"""Keyed by process, since a fork needs its own, and by the system's temporary folder."""


def sweep(parent: Path) -> None:
    """Remove the folders of killed processes, without making a new one."""
    with contextlib.suppress(OSError):
        if any(parent.iterdir()):
            with locked(parent):
                _sweep(parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content, as far as possible."""
    # A program that is being killed may still write a last file.
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        restore_permissions(folder)


def restore_permissions(folder: Path) -> None:
    """Give the owner all rights to a folder and its subfolders: a kernel may have removed them."""
    waiting = [str(folder)]
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):
            _restore_permission(current)
            with os.scandir(current) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def _restore_permission(folder: str) -> None:
    # By handle, so that links are not followed.
    handle = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(f"/proc/self/fd/{handle}").chmod(stat.S_IRWXU)
    finally:
        os.close(handle)


def _user_folder() -> Path:
    """This user's folder below the system's temporary folder.

    Any user can create names there, so a folder that is not this user's alone is skipped.
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
    """Exclusive lock on `path` (a folder, or a file that is created); waits for other holders."""
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
        _restore_permission(str(folder))
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
