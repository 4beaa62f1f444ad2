"""Sealed files: JSON objects that Kernloom writes and reads back, each with a hash as first entry.

The hash covers a key, by default the last two parts of the path, and every byte after the hash, so
a file or line that was changed, truncated or swapped with another is detected. A damaged cache is
computed again; readers of all other files report the damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernloom.base.files import write_atomically

SEAL = "sha256"
_START = f'{{"{SEAL}": "'.encode()
_HASH = 64


class DamagedFileError(ValueError):
    """A sealed file or line that differs from what was written."""


def seal(value: Mapping[str, Any], key: str, indent: int | None = None) -> str:
    """`value` as JSON text, with the hash of text and key as first entry."""
    text = json.dumps(value, indent=indent)[1:]
    rest = f'",{text}' if value else f'"{text}'
    return f"{_START.decode()}{_digest(rest.encode(), key)}{rest}"


def unseal(data: bytes, key: str) -> dict[str, Any]:
    """The entries of a sealed text, or DamagedFileError."""
    end = len(_START) + _HASH
    if not data.startswith(_START):
        raise DamagedFileError("it does not begin with its hash")
    if data[len(_START) : end] != _digest(data[end:], key).encode():
        raise DamagedFileError("its content does not match its hash")
    value: dict[str, Any] = json.loads(data)
    del value[SEAL]
    return value


def write_sealed(
    path: Path, value: Mapping[str, Any], key: str = "", indent: int | None = None
) -> None:
    write_atomically(path, seal(value, key or key_of(path), indent) + "\n")


def read_sealed(path: Path, key: str = "") -> dict[str, Any]:
    """The entries of a sealed file; OSError if it is unreadable, DamagedFileError if damaged."""
    return unseal(path.read_bytes().removesuffix(b"\n"), key or key_of(path))


def read_cache(path: Path) -> dict[str, Any]:
    """The entries of a sealed file; none if it is missing or damaged."""
    try:
        return read_sealed(path)
    except (OSError, ValueError):
        return {}


def write_cache(path: Path, entry: str, record: Mapping[str, Any]) -> None:
    """Add an entry to a sealed cache file."""
    # A cache that cannot be written only costs speed.
    with contextlib.suppress(OSError):
        write_sealed(path, read_cache(path) | {entry: record}, indent=1)


def key_of(path: Path) -> str:
    """Folder and name of a file, which are the same in a copy of the project."""
    return f"{path.parent.name}/{path.name}"


def _digest(rest: bytes, key: str) -> str:
    hashed = hashlib.sha256(f"{key}\n".encode(errors="surrogateescape"))
    hashed.update(rest)
    return hashed.hexdigest()
