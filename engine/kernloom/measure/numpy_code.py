"""Identity of the numpy that computes inputs and goldens: its version and a hash of its code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kernloom.base.code_stamp import code_stamp
from kernloom.base.files import sha256_file, sha256_json
from kernloom.base.sealed import read_cache, write_cache

_SKIPPED = ("tests", "__pycache__", "include")


def numpy_build(cache: Path) -> str:
    """Version and hash of the numpy in use, equal wherever the same build is installed.

    Hashing takes 0.2 s, so `cache` keeps the hash for as long as no file's stamp changes.
    """
    folder = Path(np.__file__).parent
    stamps = sorted(_stamps(folder))
    known_by = sha256_json([stamps, code_stamp("measure/numpy_code")])
    file = cache / "numpy.json"
    record = read_cache(file).get(str(folder))
    if not isinstance(record, dict) or record.get("known_by") != known_by:
        top = folder.parent
        digest = sha256_json([(path, sha256_file(top / path)) for path, *_ in stamps])
        record = {"known_by": known_by, "digest": digest}
        write_cache(file, str(folder), record)
    return f"{np.__version__} {str(record.get('digest'))[:16]}"


def _stamps(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    """Path and stamp of each code file, including the libraries that a wheel bundles."""
    waiting = [str(folder), f"{folder}.libs"]
    start = len(str(folder.parent)) + 1
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except FileNotFoundError:
            continue
        for entry in entries:
            # Hidden names may be editors' locks, which are dangling links.
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if entry.name not in _SKIPPED:
                    waiting.append(entry.path)
            elif entry.name.endswith((".py", ".so")) or ".so." in entry.name:
                status = entry.stat()
                yield entry.path[start:], status.st_mtime_ns, status.st_ctime_ns, status.st_size
