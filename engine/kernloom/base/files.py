"""Small file helpers: hashes, stamps, canonical JSON, atomic writes."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical_json(value: Any) -> str:
    """One spelling per value: sorted keys, no spaces."""
    return _encode(value)


def sha256_text(text: str) -> str:
    # Paths that are not UTF-8 hold surrogates.
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_json(value: Any) -> str:
    return sha256_text(canonical_json(value))


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


MAX_SOURCE_BYTES = 16 << 20
"""Size limit of templates and C files."""


def read_text(path: Path, *, limit: int, key: str = "") -> str:
    """The UTF-8 text of a file that a user named: a regular file of at most `limit` bytes.

    Opening a FIFO would wait for a writer, and a device such as /dev/zero has no end. Errors name
    `key` if given, otherwise the file.
    """
    try:
        # Non-blocking: the file type can only be checked without a race once the file is open.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(handle, "rb") as file:
            problem = _unreadable(os.fstat(handle), limit)
            # The file may have grown since, or report no size, as files in /proc do.
            data = b"" if problem else file.read(limit + 1) or b""
        if len(data) > limit:
            problem = f"it has more than {_mebibytes(limit)}"
        if not problem:
            return data.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text (byte {error.start})"
    except OSError as error:
        problem = error.strerror or str(error)
    except ValueError as error:  # a NUL in the path
        problem = str(error)
    named = f"'{path}' " if key else ""
    raise ConfigError(f"{named}cannot be read: {problem}", key=key or str(path))


def _unreadable(status: os.stat_result, limit: int) -> str:
    """The reason why a file cannot be read as text; '' if it can."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_size > limit:
        return f"it has {_mebibytes(status.st_size)}, and at most {_mebibytes(limit)} are read"
    return ""


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.3g} MiB"


def files_below(folder: Path, suffixes: Collection[str], *, deep: bool = True) -> list[Path]:
    """Sorted regular files with one of these suffixes in a folder and its subfolders.

    Hidden names are skipped: some are editors' lock files, which are dangling links.
    """
    found = folder.rglob("*") if deep else folder.glob("*")
    return sorted(
        path
        for path in found
        if path.suffix in suffixes
        and not any(map(_left_out, path.relative_to(folder).parts))
        and path.is_file()
    )


def _left_out(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file so that readers see all of it or none."""
    with replacing(path) as file:
        file.buffer.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path) -> Iterator[TextIOWrapper]:
    """A text file that replaces `path` once it is complete: written under a temporary name in the
    same folder and renamed, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with TextIOWrapper(os.fdopen(handle, "wb"), encoding="utf-8", newline="") as file:
            yield file
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def stage(files: Mapping[str, str], folder: Path) -> None:
    """Write texts to their paths below a folder."""
    made: set[Path] = set()
    for path, text in files.items():
        target = folder / path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        target.write_text(text, encoding="utf-8")


def link_atomically(link: Path, destination: Path) -> None:
    """Make `link` a relative symlink to `destination`, replacing an older one atomically."""
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(destination, link.parent))
    temporary.replace(link)


def file_stamp(path: Path | str) -> list[int]:
    """A stamp that changes with the file: mtime can be set back, ctime cannot."""
    status = os.stat(path)  # noqa: PTH116 (a path object costs more than the call)
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]


def tree_stamps(folder: Path, suffix: str = "") -> Iterator[list[Any]]:
    """Path and stamp of every file with a suffix below a folder, links followed.

    Hidden names, such as editors' lock files, are skipped.
    """
    yield from _tree_stamps(str(folder), suffix, set())


def _tree_stamps(folder: str, suffix: str, seen: set[tuple[int, int]]) -> Iterator[list[Any]]:
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            status = entry.stat()
        except OSError:
            continue
        if entry.name.startswith("."):
            continue
        if stat.S_ISDIR(status.st_mode):
            place = (status.st_dev, status.st_ino)
            yield [entry.path, *place]
            if place not in seen:
                seen.add(place)
                yield from _tree_stamps(entry.path, suffix, seen)
        elif entry.name.endswith(suffix):
            times = (status.st_mtime_ns, status.st_ctime_ns)
            yield [entry.path, *times, status.st_size, status.st_ino]
