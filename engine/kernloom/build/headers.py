"""System headers that a source includes: part of its key, since they affect the built bytes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.base.files import sha256_json, sha256_text
from kernloom.build.flags import Reach
from kernloom.build.listing import Listing, OutsideFiles, outside_files
from kernloom.build.probe import scratch, tool_output
from kernloom.build.reads import COMPILING, read_log
from kernloom.build.toolchains import DRIVER, Detected
from kernloom.plan.artifact import check_relative

_INCLUDE = re.compile(
    r"(?:#|%:)(?:\s|/\*(?:[^*]|\*(?!/))*\*/)*(?:include(?:_next)?|import|embed)\b[ \t]*(.*)"
)
_SPLICE = re.compile(r"\\[ \t\r\f\v]*\n")
_TRIGRAPHS = {"??/": "\\", "??=": "#"}
_MARKER = re.compile(r'^# \d+ "((?:[^"\\]|\\.)*)"(.*)$', re.MULTILINE)
_SEARCHED = re.compile(
    r'^ (/.*?)(?: \(framework directory\))?$|nonexistent directory "(.*)"$', re.M
)
HAS_INCLUDE = "__has_include"
"""Also the key, in the headers of an artifact, of the results of such tests."""
_PRECOMPILED = (".gch", ".pch")


def system_headers(
    files: Mapping[str, str], argv: Sequence[str], reach: Reach, detected: Detected
) -> OutsideFiles:
    """Headers outside `files` that compiling them with `argv` reads."""
    check_assembly(files)
    assembles = any(map(may_assemble, files.values()))
    if not reach.includes and not detected.opaque and not includes_outside_files(files):
        return OutsideFiles(assembles=assembles)
    texts = {path: sha256_text(text) for path, text in files.items()}
    code = code_stamp("build/headers", "build/listing", "build/reads")
    name = sha256_json([texts, argv, detected.digest, str(detected.tools[DRIVER]), code])
    lasting = not (reach.includes or detected.opaque)
    record = detected.cache / "headers" / f"{name}.json" if lasting else None
    found = outside_files(record, lambda: _listing(files, argv, detected))
    return replace(found, assembles=True) if assembles else found


def check_assembly(files: Mapping[str, str]) -> None:
    """Refuse plainly visible directives that read files. Others are found when the kernel is built:
    a GNU assembler lists the files it reads; for others the assembly output is searched."""
    for path, text in files.items():
        if ".incbin" in text:
            raise ConfigError(file_by_assembly(path, ".incbin"), hint=INSTEAD_OF_ASSEMBLY)


INSTEAD_OF_ASSEMBLY = "Write the data as a C array into a header, and include that."


INSTEAD_OF_MACRO = "Use macros of the C preprocessor, or macros of the assembler without arguments."


def file_by_macro(path: str) -> str:
    return f"{path} may read a file by an argument of an assembler macro, which nothing would list"


def file_by_assembly(path: str, directive: str) -> str:
    return f"{path} reads a file by {directive}, whose changes would go unnoticed"


def may_assemble(text: str) -> bool:
    """Whether a source may contain inline assembly, also by token pasting."""
    plain = spliced(text)
    return "asm" in plain or "##" in plain or "%:%:" in plain


def spliced(text: str, *, trigraphs: bool = True) -> str:
    """The text with trigraphs replaced and lines spliced, the first steps of C translation."""
    if trigraphs and "??" in text:
        for trigraph, character in _TRIGRAPHS.items():
            text = text.replace(trigraph, character)
    return _SPLICE.sub("", text) if "\\" in text else text


@lru_cache(maxsize=256)
def included(text: str) -> tuple[str, ...]:
    """The operand of each #include; cached, as the kernels of a sweep share most of their text."""
    return tuple(_INCLUDE.findall(spliced(text)))


def includes_outside_files(files: Mapping[str, str]) -> bool:
    """Whether a file includes, or tests for, a file that is not among `files`."""
    for path, text in files.items():
        for target in included(text):
            quoted = re.match(r'"([^"]+)"', target)
            beside = quoted and posixpath.normpath(
                posixpath.join(posixpath.dirname(path), quoted[1])
            )
            if beside not in files:
                return True
        if HAS_INCLUDE in spliced(text):
            return True
    return False


def _listing(files: Mapping[str, str], argv: Sequence[str], detected: Detected) -> Listing:
    """Files that the preprocessor reads; empty if it fails, since compiling fails as well."""
    with scratch(detected.cache) as folder, read_log(folder) as log:
        for path, text in files.items():
            check_relative(path)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        command = [str(detected.tools[DRIVER]), *without_linking(argv), "-E", "-v", *COMPILING]
        answer = tool_output(command, folder, inherited=log.inherited)
        if answer.code != 0:
            return Listing({}, lasting=False)
        read = [path for path in log.files() if not path.startswith(f"{folder}/")]
    printed = answer.stdout
    searched = dict.fromkeys(a or b for a, b in _SEARCHED.findall(answer.stderr))
    found: dict[str, str] = {}
    asks, assembles = any(HAS_INCLUDE in spliced(text) for text in files.values()), False
    marked = [
        (re.sub(r"\\(.)", r"\1", quoted), marks) for quoted, marks in _MARKER.findall(printed)
    ]
    # Some files have no line marker, such as those of -imacros.
    for path, marks in [*marked, *((path, "") for path in read)]:
        if not path.startswith("/") or path in found or path.endswith("/") or path == "/dev/null":
            continue
        found[path] = _below(path, searched)
        text = _text(path)
        if "3" not in marks.split():
            asks, assembles = asks or HAS_INCLUDE in spliced(text), assembles or may_assemble(text)
        assembles = assembles or ".incbin" in text
        _check_precompiled(path)
    # Results of __has_include are visible only in the preprocessed text.
    extra = {HAS_INCLUDE: sha256_text(_MARKER.sub("", printed))} if asks else {}
    inner = {posixpath.dirname(name) for name in found.values()}
    folders = {posixpath.join(top, folder) for top in searched for folder in inner}
    return Listing(
        found, sorted(folders | searched.keys()), extra, lasting=not asks, assembles=assembles
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from None


def _below(path: str, searched: Mapping[str, None]) -> str:
    """A header as written in an #include: without its search folder."""
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
    """The arguments of a compile-and-link command that concern compiling."""
    kept: list[str] = []
    skip = True
    for part in argv:
        if (
            not skip
            and part != "-o"
            and part != "-T"
            and not part.startswith(("-l", "-Wl,", "-shared", "-rdynamic", "-fuse-ld="))
        ):
            kept.append(part)
        skip = part in ("-o", "-T")
    return kept
