"""What the built library of a kernel may contain, checked before it is loaded: what it imports,
what runs by itself while it is loaded, and which names it takes from others.

The names are in native/kernel_imports.toml; a workload allows more of them with `allow`.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import Any

from kernloom.base.places import share_folder
from kernloom.build import elf
from kernloom.build.elf import ElfError, Library, Section, Symbol
from kernloom.build.firmware import IMAGE
from kernloom.plan.artifact import Artifact

IMPORTS = Path("native") / "kernel_imports.toml"
EVERYTHING = "everything"
"""The group of all functions."""
SYSTEM_GROUPS = ("files", "network", "processes", "signals", "timers")
"""Groups whose functions need system calls that the sandbox refuses: also in native/runner."""
_LIBRARIES = "libraries"
"""For workloads that allow libraries, which have to be loaded outside the sandbox."""
_OF_LIBRARY = ".so"
_WILD = "*[?"
_CXX = (".cpp", ".cc", ".cxx")
_OF_COMPILER = {"constructor": "frame_dummy", "destructor": "__do_global_dtors_aux"}
_START_FILE = ("deregister_tm_clones", "register_tm_clones", *reversed(_OF_COMPILER.values()))
"""Functions of the start file that compilers link before a library's own code (crtbegin), in the
order of their addresses. Their symbols have size 0."""
_START_FILE_BYTES = 512
_NO_START_FILES = frozenset({"-nostartfiles", "-nostdlib", "-r"})
"""Linker flags that leave out the start files."""
_OF_SANITIZER = re.compile(r"(asan|tsan)\.module_[cd]tor|_sub_[ID]_\d{5}_\d")
"""Constructors and destructors that compilers add, each once."""
_FAST_MATH = "set_fast_math"
_FAST_MATH_CODE = frozenset(
    bytes.fromhex(text)
    for text in (
        "0fae5c24fc814c24fc408000000fae5424fcc3",
        "f30f1efa0fae5c24fc814c24fc408000000fae5424fcc3",
        "0020a05200441bd5c0035fd6",
    )
)
"""The constructor that `-ffast-math` links: it only changes a register, which the runner restores
when the library is loaded."""
_ATOMICS = "init_have_lse_atomics"
"""The constructor that libgcc links on aarch64 for atomics: it only asks for the CPU's features."""
_ATOMICS_BYTES = 64
_CALLED_BY_START_FILES = (
    *("__gmon_start__", "__cxa_finalize"),
    *("_ITM_registerTMCloneTable", "_ITM_deregisterTMCloneTable"),
)
"""Functions that the start files call if they are defined."""
_X86_64 = (rb"(\xf3\x0f\x1e\xfa)?\x48\x83\xec\x08", rb"\x48\x83\xc4\x08\xc3")
_X86_64_CALL = rb"\x48\x8b\x05.{4}\x48\x85\xc0\x74\x02\xff\xd0"
_AARCH64 = (
    rb"(\x1f\x20\x03\xd5|[\x3f\x5f]\x23\x03\xd5|[\x1f\x5f\x9f\xdf]\x24\x03\xd5)*"
    rb"\xfd\x7b\xbf\xa9\xfd\x03\x00\x91",
    rb"\xfd\x7b\xc1\xa8([\xbf\xff]\x23\x03\xd5)?\xc0\x03\x5f\xd6",
)
_AARCH64_CALL = rb".{3}[\x94-\x97]"
_START_CODE: Mapping[tuple[int, str], re.Pattern[bytes]] = {
    (elf.X86_64, ".init"): re.compile(_X86_64_CALL.join(_X86_64), re.DOTALL),
    (elf.X86_64, ".fini"): re.compile(b"".join(_X86_64), re.DOTALL),
    (elf.AARCH64, ".init"): re.compile(_AARCH64_CALL.join(_AARCH64), re.DOTALL),
    (elf.AARCH64, ".fini"): re.compile(b"".join(_AARCH64), re.DOTALL),
}
"""Machine and section -> the start files' code in it, which calls __gmon_start__ or nothing. The
bytes that may come first or last protect jumps and return addresses."""
_SHOWN = 5


@dataclass(frozen=True)
class Allowed:
    """Names that a library may import, exactly and as patterns."""

    names: frozenset[str]
    pattern: re.Pattern[str]

    def __contains__(self, name: str) -> bool:
        return name in self.names or self.pattern.match(name) is not None

    @classmethod
    def of(cls, names: Iterable[str]) -> Allowed:
        known = sorted(set(names))
        wild = [name for name in known if any(mark in name for mark in _WILD)]
        pattern = re.compile("|".join(map(translate, wild)) if wild else r"(?!)")
        return cls(frozenset(known) - frozenset(wild), pattern)


class Admissions:
    """The libraries checked so far, each once for each `allow`."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, tuple[str, ...]], Sequence[str]] = {}

    def reasons(self, artifact: Artifact, path: Path, allow: tuple[str, ...]) -> Sequence[str]:
        """Why the built library of an artifact must not be loaded; none for a good one, and for the
        image of a bare-metal part, which no process loads."""
        if path.name == IMAGE:
            return ()
        known_by = (path, allow)
        if known_by not in self._known:
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                # Loading it fails, and says so.
                return ()
            self._known[known_by] = refusals(
                data,
                allow,
                sanitized=any(word.startswith("-fsanitize=") for word in artifact.argv),
                cxx=artifact.main.endswith(_CXX),
                start_files=_NO_START_FILES.isdisjoint(artifact.argv),
            )
        return self._known[known_by]


def system_groups(allow: Sequence[str]) -> tuple[str, ...] | None:
    """The groups of system calls that a workload allows by functions that need them; None: all."""
    if EVERYTHING in allow:
        return None
    lists = _lists()["groups"]
    groups = [
        group
        for group in SYSTEM_GROUPS
        if group in allow or any(name in Allowed.of(lists[group]) for name in allow)
    ]
    if any(_OF_LIBRARY in name for name in _more(allow)):
        groups.append(_LIBRARIES)
    return tuple(groups)


def refusals(
    data: bytes,
    allow: Sequence[str] = (),
    *,
    sanitized: bool = False,
    cxx: bool = False,
    start_files: bool = True,
) -> Sequence[str]:
    """Why a kernel's library must not be loaded; none for a good one, and for other files."""
    try:
        library = Library.read(data)
        if library is None or library.type != elf.SHARED:
            return ()
        library.check()
        return [
            *_found(library, tuple(allow), sanitized, cxx),
            *_running_while_loaded(library, sanitized, start_files),
        ]
    except ElfError as error:
        return [str(error)]


def summary(name: str, path: Path, reasons: Sequence[str]) -> str:
    """The message of a trial whose kernel is refused."""
    more = len(reasons) - _SHOWN
    shown = [*reasons[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    return f"the library of {name} {'; '.join(shown)} ({path})"


def _found(library: Library, allow: tuple[str, ...], sanitized: bool, cxx: bool) -> Iterator[str]:
    allowed = _allowed(allow, sanitized, cxx)
    for name in library.needed:
        # A name with a slash is a path; patterns are of names.
        libraries = _libraries(allow, sanitized, cxx)
        if name not in (libraries.names if "/" in name else libraries):
            yield f"needs the library '{name}', which kernels may not load"
    for name in library.imports:
        if name not in allowed:
            yield f"imports '{name}', which is not on the list (allow it: {_remedy(name)})"
    for name in library.exports:
        if name in _owned():
            yield f"defines '{name}', a name of the runner or of the C library; make it static"
    for name in dict.fromkeys(library.looked_up):
        if name not in allowed and name not in _owned() and _of_c_library(name):
            yield f"defines '{name}', but calls the C library's of that name; make it static"
    for name in library.writable_code:
        yield f"has '{name}', which is writable and executable"
    if library.executable_stack:
        yield "makes the stack executable (nested functions, or assembly without .note.GNU-stack)"


def _running_while_loaded(library: Library, sanitized: bool, start_files: bool) -> Iterator[str]:
    """Code that would run before the kernel is called, or after its process is done."""
    arrays = (
        ("constructor", elf.INIT_ARRAY, elf.INIT_ARRAY_BYTES),
        ("destructor", elf.FINI_ARRAY, elf.FINI_ARRAY_BYTES),
    )
    for what, array, size in arrays:
        known: set[str] = set()
        for function in library.functions_of(array, size):
            of_start_file = start_files and _of_start_file(library, function, _OF_COMPILER[what])
            if function.name in known or not (
                of_start_file or _of_compiler(library, function, known, sanitized)
            ):
                yield f"has the {what} '{function.name}'"
            known.add("sanitizer" if _OF_SANITIZER.fullmatch(function.name) else function.name)
    for name, tag in ((".init", elf.INIT), (".fini", elf.FINI)):
        section = library.section(name) if start_files else None
        own = section is not None and not _is_start_code(library, section)
        if own or library.tag(tag) not in (0, section.address if section else 0):
            yield f"has code of its own in the section '{name}'"
    for one in library.all_symbols:
        if one.defined and one.name in _CALLED_BY_START_FILES:
            yield f"defines '{one.name}', which start files call"
    if library.tag(elf.PREINIT_ARRAY_BYTES):
        yield "has constructors in .preinit_array"
    for name in dict.fromkeys(library.ifuncs):
        yield f"has the function '{name}' that is chosen while it is loaded (ifunc)"
    for tag in (elf.AUXILIARY, elf.FILTER, elf.AUDIT, elf.DEPENDENCY_AUDIT):
        if tag in library.tags:
            yield f"has tag {tag:#x}, which puts another library in its place"


@cache
def _of_c_library(name: str) -> bool:
    """Whether the C library has a name; this machine's C library is asked for all targets."""
    return any(hasattr(library, name) for library in _c_libraries()) or any(
        name in Allowed.of(names)
        for group, names in _lists()["groups"].items()
        if group != EVERYTHING
    )


@cache
def _c_libraries() -> tuple[ctypes.CDLL, ...]:
    found = []
    for name in ("libc.so.6", "libm.so.6"):
        with contextlib.suppress(OSError):
            found.append(ctypes.CDLL(name))
    return tuple(found)


def _of_compiler(library: Library, function: Symbol, known: set[str], sanitized: bool) -> bool:
    """Whether a constructor is one that the compiler adds to libraries with certain flags."""
    if function.name == _FAST_MATH:
        return library.code(function) in _FAST_MATH_CODE
    if function.name == _ATOMICS:
        return _asks_for_features(library, function)
    if sanitized and _OF_SANITIZER.fullmatch(function.name):
        return "sanitizer" not in known
    return False


def _of_start_file(library: Library, function: Symbol, name: str) -> bool:
    """Whether a function is crtbegin's own of that name. A kernel's function of the same name is a
    second symbol."""
    found = [
        one for one in library.all_symbols if one.type == elf.FUNCTION and one.name in _START_FILE
    ]
    return (
        function.name == name
        and function in found
        and tuple(one.name for one in found) == _START_FILE
        and all(one.binding == elf.LOCAL and not one.bytes for one in found)
        and [*found] == sorted(found, key=lambda one: one.address)
        and found[-1].address - found[0].address < _START_FILE_BYTES
    )


def _is_start_code(library: Library, section: Section) -> bool:
    """Whether a section .init or .fini has the code of the start files and nothing else."""
    known = _START_CODE.get((library.machine, section.name))
    code = library.data[section.offset : section.offset + section.bytes]
    return not code or (known is not None and known.fullmatch(code) is not None)


def _asks_for_features(library: Library, function: Symbol) -> bool:
    """Whether code of aarch64 calls one imported function, and jumps nowhere."""
    plt, code = library.section(".plt"), library.code(function)
    if library.machine != elf.AARCH64 or plt is None or len(code) > _ATOMICS_BYTES:
        return False
    calls = 0
    for at in range(0, len(code), 4):
        word = int.from_bytes(code[at : at + 4], "little")
        if word >> 26 == 0b100101:
            target = function.address + at + 4 * ((word & 0x3FFFFFF ^ 0x2000000) - 0x2000000)
            calls += 1 if plt.address <= target < plt.address + plt.bytes else 2
        elif word >> 26 == 0b000101 or word & 0xFFFFFC1F in (0xD61F0000, 0xD63F0000):
            return False
    return calls == 1


def _remedy(name: str) -> str:
    """How a workload allows a function."""
    groups = _lists()["groups"].items()
    found = (group for group, names in groups if group != EVERYTHING and name in Allowed.of(names))
    return f"workload.allow=[{next(found, name)}]"


@cache
def _lists() -> Mapping[str, Mapping[str, Sequence[str]]]:
    path = share_folder() / IMPORTS
    found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return found


def _all_of(section: str) -> Iterator[str]:
    for names in _lists()[section].values():
        yield from names


def _math() -> Iterator[str]:
    lists = _lists()["math"]
    for name in lists["functions"]:
        yield from (name, f"{name}f", f"{name}l")
    yield from lists["finite"]


def _more(allow: Sequence[str]) -> Iterator[str]:
    """What a workload allows, with groups replaced by their names."""
    for name in allow:
        yield from _lists()["groups"].get(name, [name])


@cache
def _allowed(allow: tuple[str, ...], sanitized: bool, cxx: bool) -> Allowed:
    sections = ["always", *(["sanitized"] if sanitized else []), *(["cxx"] if cxx else [])]
    own = [name for section in sections for name in _all_of(section)]
    return Allowed.of([*own, *_math(), *_more(allow)])


@cache
def _libraries(allow: tuple[str, ...], sanitized: bool, cxx: bool) -> Allowed:
    lists = _lists()["libraries"]
    names = [*lists["always"], *_more(allow)]
    names += lists["sanitized"] if sanitized else ()
    names += lists["cxx"] if cxx else ()
    return Allowed.of(names)


@cache
def _owned() -> Allowed:
    """Names that no kernel defines."""
    # Without patterns: compilers put functions of such names into libraries.
    own = Allowed.of([*_all_of("always"), *_math()]).names
    return Allowed.of([*own, *_all_of("reserved")])
