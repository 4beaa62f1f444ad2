"""The system's headers that a source includes: they decide its bytes as much as the source does."""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from kernloom.build.flags import Reach
from kernloom.build.listing import Listing, hashes
from kernloom.build.toolchains import DRIVER, Detected, tool_output, writable
from kernloom.code_stamp import code_stamp
from kernloom.errors import ConfigError
from kernloom.files import sha256_json, sha256_text

_INCLUDE = re.compile(
    r"(?:#|%:)(?:\s|\\\n|/\*.*?\*/)*(?:include(?:_next)?|import|embed)\b[ \t]*(.*)"
)
_MARKER = re.compile(r'^# \d+ "((?:[^"\\]|\\.)*)"(.*)$', re.MULTILINE)
_SEARCHED = re.compile(
    r'^ (/.*?)(?: \(framework directory\))?$|nonexistent directory "(.*)"$', re.M
)
_ASKS = "__has_include"
_PRECOMPILED = (".gch", ".pch")


def system_headers(
    files: Mapping[str, str], argv: Sequence[str], reach: Reach, detected: Detected
) -> dict[str, str]:
    """Name -> hash of each header outside `files` that compiling them with `argv` reads."""
    _check_assembly(files)
    if not reach.includes and not looks_outside(files):
        return {}
    texts = {path: sha256_text(text) for path, text in files.items()}
    code = code_stamp("build/headers", "build/listing")
    name = sha256_json([texts, argv, detected.digest, str(detected.tools[DRIVER]), code])
    record = None if reach.includes else detected.cache / "headers" / f"{name}.json"
    return hashes(record, lambda: _listing(files, argv, detected))


def _check_assembly(files: Mapping[str, str]) -> None:
    """The assembler reads files, too, and cannot be asked which."""
    for path, text in files.items():
        if ".incbin" in text:
            raise ConfigError(
                f"{path} reads a file by .incbin, whose changes would go unnoticed",
                hint="Write the data as a C array into a header, and include that.",
            )


@lru_cache(maxsize=256)
def _included(text: str) -> tuple[str, ...]:
    """What stands behind each #include; the kernels of a sweep have most of it in common."""
    return tuple(_INCLUDE.findall(text))


def looks_outside(files: Mapping[str, str]) -> bool:
    """Whether some file includes, or asks for, one that is not among them."""
    for path, text in files.items():
        for target in _included(text):
            quoted = re.match(r'"([^"]+)"', target)
            beside = quoted and posixpath.normpath(
                posixpath.join(posixpath.dirname(path), quoted[1])
            )
            if beside not in files:
                return True
        if _ASKS in text:
            return True
    return False


def _listing(files: Mapping[str, str], argv: Sequence[str], detected: Detected) -> Listing:
    """What the preprocessor reads; nothing where it fails, for then compiling fails too."""
    with tempfile.TemporaryDirectory(dir=writable(detected.cache)) as name:
        folder = Path(name)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        command = [str(detected.tools[DRIVER]), *without_linking(argv), "-E", "-v"]
        code, printed, said = tool_output(command, cwd=folder)
    if code != 0:
        return Listing({}, lasting=False)
    searched = dict.fromkeys(a or b for a, b in _SEARCHED.findall(said))
    found: dict[str, str] = {}
    asks = any(_ASKS in text for text in files.values())
    for quoted, marks in _MARKER.findall(printed):
        path = re.sub(r"\\(.)", r"\1", quoted)
        if not path.startswith("/") or path in found or path.endswith("/") or path == "/dev/null":
            continue
        found[path] = _below(path, searched)
        if "3" not in marks.split():
            asks = asks or _ASKS in Path(path).read_text(encoding="utf-8", errors="replace")
        _check_precompiled(path)
    # What a file is told about others shows nowhere but in what is left of it.
    extra = {_ASKS: sha256_text(_MARKER.sub("", printed))} if asks else {}
    inner = {posixpath.dirname(name) for name in found.values()}
    folders = {posixpath.join(top, folder) for top in searched for folder in inner}
    return Listing(found, sorted(folders | searched.keys()), extra, lasting=not asks)


def _below(path: str, searched: Mapping[str, None]) -> str:
    """A header as it would be included: without the folder it was found in."""
    tops = [top for top in searched if path.startswith(top.rstrip("/") + "/")]
    top = max(tops, key=len, default=posixpath.dirname(path))
    return path[len(top.rstrip("/")) + 1 :]


def _check_precompiled(path: str) -> None:
    for suffix in _PRECOMPILED:
        if Path(path + suffix).exists():
            raise ConfigError(
                f"the compiler would take {path}{suffix} in place of the header",
                hint="Remove it: nothing tells whether a precompiled header is up to date.",
            )


def without_linking(argv: Sequence[str]) -> list[str]:
    """The arguments of a compile-and-link command that are about compiling."""
    kept: list[str] = []
    skip = True
    for part in argv:
        if (
            not skip
            and part != "-o"
            and not part.startswith(("-l", "-Wl,", "-shared", "-rdynamic", "-fuse-ld="))
        ):
            kept.append(part)
        skip = part == "-o"
    return kept
