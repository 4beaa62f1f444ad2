"""Listing of the files that a compiler reads, cached while it stays valid."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernloom.base.errors import UnavailableError
from kernloom.base.files import file_stamp, sha256_file, sha256_json
from kernloom.base.sealed import read_cache, write_sealed

_SETTLED_NS = 2_000_000_000
"""Minimum age of a settled file: a younger one may change again under the same stamp, since file
systems count time in ticks, some of them in seconds."""

Stamp = Sequence[Any]
"""`file_stamp` at the time of hashing, plus the hash if the stamp proves too little."""


@dataclass(frozen=True)
class Listing:
    """Files in reading order, and the folders that were searched for them."""

    files: Mapping[str, str]
    """Absolute path -> name in a key, free of this machine's folders."""
    folders: Iterable[str] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    """Name -> hash of inputs that are not files."""
    lasting: bool = True
    """Whether it is valid until the files and folders change; not if the compiler failed."""
    assembles: bool = False
    """Whether a file may contain assembly, whose directives can read further files."""


@dataclass(frozen=True)
class OutsideFiles:
    """Files outside an artifact's folder that its command reads."""

    hashes: Mapping[str, str] = field(default_factory=dict)
    """Name -> hash; part of the key."""
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    """Absolute path -> stamp at the time of hashing."""
    assembles: bool = False


def outside_files(record: Path | None, list_files: Callable[[], Listing]) -> OutsideFiles:
    """Hashes and stamps of the files that `list_files` returns, cached in `record` until one
    changes."""
    known = read_cache(record) if record else {}
    if not known or not _still_true(known):
        listing = list_files()
        # Stamped before reading, so that a change in between is noticed next time.
        known = {
            "folders": {folder: _folder_stamp(folder) for folder in listing.folders},
            "assembles": listing.assembles,
        }
        try:
            known["files"] = [
                [path, name, *_stamp_and_hash(path)] for path, name in listing.files.items()
            ]
        except OSError as error:
            raise UnavailableError(f"{error.filename} cannot be read: {error.strerror}") from None
        if not listing.lasting:
            return _outside_files(known, listing.extra)
        stamps = [*known["folders"].values(), *(stamp for _, _, stamp, _ in known["files"])]
        if record and all(map(_settled, filter(None, stamps))):
            # A cache that cannot be written only costs speed.
            with contextlib.suppress(OSError):
                write_sealed(record, known)
    return _outside_files(known, {})


def _stamp_and_hash(path: str) -> tuple[list[int], str]:
    """A listing that does not last is made for every artifact, and a linker's libraries are large:
    in one process they are hashed once."""
    stamp = file_stamp(path)
    if _settled(stamp):
        return stamp, _hash_at(path, tuple(stamp))
    return stamp, sha256_file(Path(path))


@lru_cache(maxsize=4096)
def _hash_at(path: str, stamp: tuple[int, ...]) -> str:
    """The hash of a file with this stamp."""
    return sha256_file(Path(path))


def _outside_files(known: Mapping[str, Any], extra: Mapping[str, str]) -> OutsideFiles:
    named: dict[str, list[str]] = {}
    for _, name, _, digest in known["files"]:
        named.setdefault(name, []).append(digest)
    return OutsideFiles(
        {name: _together(tuple(digests)) for name, digests in named.items()} | dict(extra),
        {
            path: stamp if _settled(stamp) else [*stamp, digest]
            for path, _, stamp, digest in known["files"]
        },
        known["assembles"],
    )


@lru_cache(maxsize=4096)
def _together(digests: tuple[str, ...]) -> str:
    """One hash of files with the same name; many artifacts read the same headers."""
    return sha256_json(list(digests))


def _settled(stamp: Sequence[int]) -> bool:
    """Whether any later change of the file would change its stamp."""
    return abs(time.time_ns() - max(stamp[0], stamp[1])) > _SETTLED_NS


def unchanged(path: str, stamp: Stamp) -> bool:
    """Whether a file has not changed since it was stamped."""
    try:
        now = file_stamp(path)
        same = now == list(stamp[: len(now)])
        return same and (len(stamp) == len(now) or sha256_file(Path(path)) == stamp[-1])
    except OSError:
        return False


_seen: ContextVar[dict[str, list[int]] | None] = ContextVar("stamps", default=None)


@contextlib.contextmanager
def stamping_once() -> Iterator[None]:
    """Examine each file once inside the block: many artifacts read the same headers."""
    token = _seen.set({})
    try:
        yield
    finally:
        _seen.reset(token)


def _stamp(path: str) -> list[int]:
    seen = _seen.get()
    if seen is None:
        return file_stamp(path)
    if path not in seen:
        seen[path] = file_stamp(path)
    return seen[path]


def _still_true(known: Mapping[str, Any]) -> bool:
    try:
        return (
            isinstance(known["assembles"], bool)
            and all(_stamp(path) == stamp for path, _, stamp, _ in known["files"])
            and all(_folder_stamp(folder) == stamp for folder, stamp in known["folders"].items())
        )
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return False


def _folder_stamp(folder: str) -> list[int] | None:
    """Changes when a name is added to the folder, or the folder is replaced."""
    try:
        return _stamp(folder)
    except OSError:
        return None
