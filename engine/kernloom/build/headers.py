"""The system's headers that a source includes: they decide its bytes as much as the source does."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kernloom.build.toolchains import DRIVER, Detected, ask, read_cache
from kernloom.errors import UnavailableError
from kernloom.files import sha256_file, sha256_json, sha256_text, write_json

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def system_headers(
    files: Mapping[str, str], argv: Sequence[str], detected: Detected
) -> dict[str, str]:
    """Name -> hash of each header outside `files` that compiling them with `argv` reads."""
    if not _looks_outside(files):
        return {}
    hashes = {path: sha256_text(text) for path, text in files.items()}
    record = detected.cache / "headers" / f"{sha256_json([hashes, argv, detected.digest])}.json"
    known = read_cache(record)
    if not known or not _still_true(known):
        known = {path: _stamp(Path(path)) for path in _scan(files, argv, detected)}
        # Only speed is lost where the cache cannot be written.
        with contextlib.suppress(OSError):
            write_json(record, known)
    named: dict[str, list[str]] = {}
    for path, (_, _, digest) in sorted(known.items()):
        named.setdefault(Path(path).name, []).append(digest)
    return {name: sha256_json(sorted(digests)) for name, digests in named.items()}


def _looks_outside(files: Mapping[str, str]) -> bool:
    staged = {PurePosixPath(path).name for path in files}
    for text in files.values():
        for target in _INCLUDE.findall(text):
            quoted = re.match(r'"([^"]+)"', target)
            if not quoted or PurePosixPath(quoted[1]).name not in staged:
                return True
    return False


def _scan(files: Mapping[str, str], argv: Sequence[str], detected: Detected) -> list[str]:
    """Absolute paths the preprocessor reads; none where it fails, for then compiling fails too."""
    with tempfile.TemporaryDirectory(dir=_writable(detected.cache)) as name:
        folder = Path(name)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        try:
            rules = ask([detected.tools[DRIVER], *without_linking(argv), "-M"], cwd=folder)
        except UnavailableError:
            return []
    words = re.findall(r"(?:\\[^\n]|[^\s\\])+", rules.replace("\\\n", " "))
    paths = {re.sub(r"\\(.)", r"\1", word) for word in words}
    return sorted(path for path in paths if Path(path).is_absolute())


def without_linking(argv: Sequence[str]) -> list[str]:
    """The arguments of a compile-and-link command that are about compiling."""
    kept: list[str] = []
    skip = True
    for part in argv:
        if (
            not skip
            and part != "-o"
            and not part.startswith(("-l", "-Wl,", "-shared", "-rdynamic"))
        ):
            kept.append(part)
        skip = part == "-o"
    return kept


def _writable(cache: Path) -> Path | None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return cache if os.access(cache, os.W_OK) else None


def _stamp(path: Path) -> list[Any]:
    status = path.stat()
    return [status.st_mtime_ns, status.st_size, sha256_file(path)]


def _still_true(known: Mapping[str, Any]) -> bool:
    try:
        for path, (mtime, size, _) in known.items():
            status = Path(path).stat()
            if [status.st_mtime_ns, status.st_size] != [mtime, size]:
                return False
    except (OSError, TypeError, ValueError):
        return False
    return True
