"""Files that a compiler said it reads, remembered for as long as it would say the same."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernloom.errors import UnavailableError
from kernloom.files import file_stamp, sha256_file, sha256_json
from kernloom.sealed import read_cache, write_sealed


@dataclass(frozen=True)
class Listing:
    """Files in the order in which they are read, and the folders in which they were looked for."""

    files: Mapping[str, str]
    """Absolute path -> the name by which it goes into a key, free of this machine's folders."""
    folders: Iterable[str] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    """Name -> hash of what is no file."""
    lasting: bool = True
    """Whether it stays true while the files and folders do; not if the compiler failed."""


def hashes(record: Path | None, look: Callable[[], Listing]) -> dict[str, str]:
    """Name -> hash of what `look` lists; kept in `record` until a file or folder changes."""
    known = read_cache(record) if record else {}
    if not known or not _still_true(known):
        listing = look()
        # Stamped before they are read: what changes meanwhile is read again next time.
        known = {"folders": {folder: _folder_stamp(folder) for folder in listing.folders}}
        try:
            known["files"] = [
                [path, name, file_stamp(Path(path)), sha256_file(Path(path))]
                for path, name in listing.files.items()
            ]
        except OSError as error:
            raise UnavailableError(f"{error.filename} cannot be read: {error.strerror}") from None
        if not listing.lasting:
            return _named(known["files"]) | dict(listing.extra)
        if record:
            # Only speed is lost where the cache cannot be written.
            with contextlib.suppress(OSError):
                write_sealed(record, known)
    return _named(known["files"])


def _named(files: Iterable[Sequence[Any]]) -> dict[str, str]:
    named: dict[str, list[str]] = {}
    for _, name, _, digest in files:
        named.setdefault(name, []).append(digest)
    return {name: sha256_json(digests) for name, digests in named.items()}


def _still_true(known: Mapping[str, Any]) -> bool:
    try:
        return all(file_stamp(Path(path)) == stamp for path, _, stamp, _ in known["files"]) and all(
            _folder_stamp(folder) == stamp for folder, stamp in known["folders"].items()
        )
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return False


def _folder_stamp(folder: str) -> list[int] | None:
    """Changes when a name appears in the folder, or the folder itself does."""
    try:
        return file_stamp(Path(folder))
    except OSError:
        return None


def rule_words(rules: str) -> list[str]:
    """The words of a make rule, as compilers and linkers write them."""
    words = re.findall(r"(?:\\[^\n]|[^\s\\])+", rules.replace("\\\n", " "))
    return [re.sub(r"\\(.)", r"\1", word) for word in words]
