"""Compiler flags, classified by the files they make an artifact depend on.

Most flags control code generation and name no file. Some name files, or folders to search: their
content goes into the key, so that a change is noticed. A flag with unknown dependencies is refused:
it could make a stale artifact look current.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernloom.base.errors import ConfigError

_INCLUDES = ("-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-isysroot", "-I")
_SEARCHES = ("--sysroot", "-target", "--target", "-L", "-l", "-T")
_TARGETS = ("-target", "--target")
"""Flags above that choose folders and programs of the compiler's own, which it lists."""
_FOLDERS = ("-isystem", "-iquote", "-idirafter", "-isysroot", "-I", "--sysroot", "-L")
"""Flags above that name a folder. A missing folder is silently skipped."""
_NO_HEADERS = ("-L", "-l", "-T", *_TARGETS)
"""Flags above that add no folder of headers; a target's own are the compiler's, as any default."""
_LIBRARY_PATHS = ("--library-path", "-L")
"""The same as linker flags."""
_SPLIT_WORDS = ("--param", "-mllvm", "-D", "-U", "-u", "-z")
"""Flags whose argument may be the next word and names no file."""
_LINKER = ("-Wl,", "-Xlinker")
_TEXT = ("-D", "-U", "-fdebug-compilation-dir=", "-frandom-seed=")
"""Flags with text arguments that go into the artifact, as for all flags ending in -prefix-map."""
_PLAIN = ("-O", "-g", "-f", "-m", "-W", "-D", "-U", "-u", "-z", "-std=", "-pedantic", "-static")
"""Prefixes of flags that name no files, or name them after a = or a comma."""
_PLAIN_WORDS = (
    *("-w", "-s", "-p", "-pg", "-pipe", "-ansi", "-pthread", "-rdynamic", "-shared", "-pie"),
    "-trigraphs",
    *("-no-pie", "-nostdinc", "-nostdlib", "-nostartfiles", "-nodefaultlibs", "-nolibc"),
    "--coverage",
)
_PROGRAMS = (
    *("@", "-B", "-specs", "--specs", "-wrapper", "-Wp,", "-Xassembler", "-Xpreprocessor"),
    *("--config", "-gcc-", "--gcc-", "--ld-path", "-resource-dir", "-ccc-", "-dumpbase"),
    *("-fplugin", "-fpass-plugin", "-plugin", "-add-plugin", "-fmodule", "-iprefix"),
    *("-iwithprefix", "-save-temps", "-no-canonical-prefixes"),
)
"""Prefixes of flags that choose programs, or files in untraceable ways."""
_NATIVE = ("-march=native", "-mcpu=native", "-mtune=native")
_REFUSED = (
    "Kernloom cannot tell what such a flag reads, so a change there would go unnoticed. "
    "Another compiler or linker is another toolchain: set toolchain.tools."
)


@dataclass(frozen=True)
class Reach:
    """Dependencies of a command that its flags add to its own files and the compiler's."""

    searches: bool = False
    """Whether folders are searched that may change at any time: no caching."""
    includes: bool = False
    """Whether headers are searched for."""
    files: tuple[Path, ...] = ()
    programs: tuple[str, ...] = ()
    """Programs other than the default ones, by the compiler's names for them."""
    cpu: bool = False
    """Whether the code depends on the processor of the compiling machine."""


def reach(groups: Mapping[str, Sequence[str]]) -> Reach:
    """Dependencies of flags, grouped by config key. Raises ConfigError for a flag that could hide a
    change."""
    searches, includes, cpu = False, False, False
    files: list[Path] = []
    programs: list[str] = []
    for key, words in groups.items():
        for flag, argument, shown in _pairs(words, key):
            linking = flag.startswith(_LINKER)
            if flag in _INCLUDES or flag in _SEARCHES:
                _check_path(flag, argument or "", shown, key)
                searches = searches or flag not in _TARGETS
                includes = includes or flag not in _NO_HEADERS
                if flag == "-imacros":
                    files.append(_file(argument or "", shown, key))
            elif linking:
                passed = argument.split(",") if argument else flag.split(",")[1:]
                if any(word.startswith(("@", "-plugin", "--plugin")) for word in passed):
                    raise ConfigError(f"the flag '{shown}' is refused", key=key, hint=_REFUSED)
                _check_linker_paths(passed, shown, key)
                searches = True
                pieces = [piece for word in passed for piece in word.split("=")]
                files.extend(Path(p) for p in pieces if p[:1] == "/" and Path(p).is_file())
            elif _unbounded(argument or "" if flag == "-Xclang" else flag):
                raise ConfigError(f"the flag '{shown}' is refused", key=key, hint=_REFUSED)
            elif not flag.startswith("-"):
                if Path(flag).suffix not in (".o", ".a", ".so") and ".so." not in flag:
                    raise ConfigError(
                        f"'{flag}' is no flag",
                        key=key,
                        hint="Sources belong to a kernel; objects and libraries may be given "
                        "by absolute paths.",
                    )
                files.append(_file(flag, shown, key))
            elif not _known(flag):
                raise ConfigError(f"the flag '{shown}' is not known", key=key, hint=_REFUSED)
            elif not flag.startswith(_TEXT) and "-prefix-map=" not in flag:
                files.extend(_named(flag, argument, shown, key))
            if flag.startswith("-fuse-ld="):
                programs.append(f"ld.{flag.partition('=')[2]}")
            elif flag in _TARGETS:
                programs += ["as", "ld"]
            cpu = cpu or flag in _NATIVE
    return Reach(searches, includes, tuple(files), tuple(programs), cpu)


def _pairs(words: Sequence[str], key: str) -> Iterator[tuple[str, str | None, str]]:
    """Each flag, its argument, attached or in the next word, and both as given."""
    rest = iter(words)
    for word in rest:
        takes = next((f for f in (*_INCLUDES, *_SEARCHES) if word.startswith(f)), None)
        if word in (*_INCLUDES, *_SEARCHES, *_SPLIT_WORDS, "-Xclang", "-Xlinker"):
            argument = next(rest, None)
            if argument is None:
                raise ConfigError(f"the flag '{word}' lacks its argument", key=key)
            yield word, argument, f"{word} {argument}"
        elif takes and not _unbounded(word):
            yield takes, word.removeprefix(takes).removeprefix("="), word
        else:
            yield word, None, word


def _unbounded(word: str) -> bool:
    if word.startswith("-Wa,"):
        return any(part in word for part in ("@", "/", "-I"))
    path = word.startswith("-fuse-ld=") and "/" in word
    return word.startswith(_PROGRAMS) or word == "-load" or path


def _known(flag: str) -> bool:
    others = (*_SPLIT_WORDS, "-Xclang")
    return flag.startswith((*_PLAIN, "--param=")) or flag in _PLAIN_WORDS or flag in others


def _split(word: str) -> list[str]:
    return word.replace(",", "=").split("=")


def _named(flag: str, argument: str | None, shown: str, key: str) -> Iterator[Path]:
    """The files named in the values of a flag."""
    pieces = _split(flag)[1:] + _split(argument or "")
    for piece in pieces:
        if piece.startswith(("/", "~")) or ".." in PurePosixPath(piece).parts:
            yield _file(piece, shown, key)


def _file(name: str, shown: str, key: str) -> Path:
    path = Path(name)
    if not path.is_absolute() or not path.is_file():
        raise ConfigError(
            f"the flag '{shown}' names no file: {name}",
            key=key,
            hint="Name one existing file by its absolute path; a folder cannot be followed.",
        )
    return path


def _check_path(flag: str, argument: str, shown: str, key: str) -> None:
    """Refuse a path relative to the folder of compilation, which is internal to Kernloom."""
    leads_out = ".." in PurePosixPath(argument).parts
    if (flag in _FOLDERS or leads_out) and not argument.startswith("/"):
        raise ConfigError(
            f"the flag '{shown}' has a relative path, but the compiler runs in a folder of its own",
            key=key,
            hint="Use an absolute path.",
        )


def _check_linker_paths(words: Sequence[str], shown: str, key: str) -> None:
    for number, word in enumerate(words):
        flag = next((f for f in _LIBRARY_PATHS if word.startswith(f)), None)
        if flag:
            argument = word.removeprefix(flag).removeprefix("=") or "".join(words[number + 1 :][:1])
            # A folder in the next -Xlinker is not visible here, so only an attached one is checked.
            if argument:
                _check_path("-L", argument, shown, key)
