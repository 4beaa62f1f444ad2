"""Small file helpers: hashes, stamps, canonical JSON, files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical_json(value: Any) -> str:
    """One spelling per value: sorted keys, no spaces."""
    return _encode(value)


def sha256_text(text: str) -> str:
    # Paths that are not UTF-8 hold surrogates.
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def sha256_json(value: Any) -> str:
    return sha256_text(canonical_json(value))


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write beside the final name and rename, so a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def link_atomically(link: Path, destination: Path) -> None:
    """Make `link` a relative symlink to `destination`, replacing an older one in one step."""
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(destination, link.parent))
    temporary.replace(link)


def file_stamp(path: Path) -> list[int]:
    """Changes whenever the file does: the time of writing can be set back, of change it cannot."""
    status = path.stat()
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]
