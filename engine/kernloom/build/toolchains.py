"""Toolchains on this machine, and their exact identity.

A compiler's identity is the hash of its files, never its path. Hashing a compiler proper takes a
tenth of a second, so the result is cached until one of the files changes.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.base.files import file_stamp, sha256_file, sha256_json
from kernloom.base.sealed import read_cache, write_cache
from kernloom.build.probe import ProbeError, query_tool, scratch, tool_output
from kernloom.build.wrappers import is_script, resolve_wrapper
from kernloom.config.schema import Arch, Target, Toolchain
from kernloom.plan.artifact import Identity

DRIVER = "cc"
"""Role of the tool that compiles, links and finds all other tools."""
CXX = "cxx"
"""Role of the same for C++."""
_PROGRAMS = ("cc1", "as", "collect2", "ld", "lto1")
_CXX_PROGRAMS = ("cc1plus",)
_START_FILES = (
    "specs",
    "Scrt1.o",
    "crti.o",
    "crtbeginS.o",
    "crtendS.o",
    "crtn.o",
    "libgcc.a",
    "libc.so",
)
"""System files that the linker copies from."""
_LIBRARIES = (
    "libclang",
    "libLLVM",
    "libbfd",
    "libopcodes",
    "libisl",
    "libmpfr",
    "libmpc",
    "libgmp",
)
"""Name prefixes of shared libraries that contain most of a compiler."""
FAMILIES = ("gcc", "clang")
"""Families that are distinguished: their flags have different meanings."""


@dataclass(frozen=True)
class Detected:
    """A toolchain found on this machine."""

    toolchain: str
    family: str
    tools: Mapping[str, Path]
    """Role -> absolute path."""
    version: str
    triple: str
    digest: str
    parts: Mapping[str, str] = field(repr=False, default_factory=dict)
    stamps: Mapping[str, Sequence[int]] = field(repr=False, compare=False, default_factory=dict)
    """Absolute path -> stamp of each examined file."""
    opaque: bool = False
    """Whether a script starts the compiler: nothing about it can be cached."""
    lists_assembly: bool = False
    """Whether its assembler can list the files it reads."""
    cache: Path = field(compare=False, default=Path())
    """Folder of cached facts about compilers."""
    known: dict[Any, Any] = field(repr=False, compare=False, default_factory=dict)
    """Facts cached in this process."""

    @property
    def identity(self) -> Identity:
        return Identity(self.toolchain, self.version, self.triple, self.digest, self.parts)


def lacks_tool(what: str, role: str, toolchain: Toolchain) -> str:
    return (
        f"{what} needs the tool '{role}', which toolchain '{toolchain.name}' does not have "
        "(toolchain.tools)"
    )


def with_driver(toolchain: Toolchain, role: str, what: str, *, cxx: bool = True) -> Toolchain:
    """The toolchain with another of its tools as its driver; `cxx`: with the flags of C++. `what`
    needs it."""
    if role not in toolchain.tools:
        raise UnavailableError(
            lacks_tool(what, role, toolchain),
            hint=f"Add its C++ compiler: tools: {{{CXX}: NAME}} and cxx_flags in "
            f"configs/toolchain/{toolchain.name}.yaml.",
        )
    flags = toolchain.cxx_flags if cxx else toolchain.flags
    return replace(toolchain, tools={DRIVER: toolchain.tools[role]}, flags=flags)


def detect(toolchain: Toolchain, cache: Path, *, role: str = DRIVER) -> Detected:
    """The toolchain's tools and identity, or UnavailableError with what to install. `role` is what
    the toolchain calls its driver, if not `cc`."""
    if not toolchain.tools:
        # The device's own driver compiles when the kernel is loaded.
        return Detected(toolchain.name, toolchain.family, {}, "", "", "")
    if DRIVER not in toolchain.tools:
        raise ConfigError(f"no tool has the role '{DRIVER}'", key="toolchain.tools")
    # Other tools are needed by few programs only.
    tools = {DRIVER: _find(toolchain, role, toolchain.tools[DRIVER])}
    # Clang has many targets, and reports which libraries it would use for this one.
    target = [flag for flag in toolchain.flags if flag.startswith("--target=")]
    # Only by name: a user's specs file could make the compiler start any program.
    specs = [f for f in toolchain.flags if f.startswith("--specs=") and os.sep not in f]
    code = code_stamp("build/toolchains", "build/wrappers", "build/probe")
    entry = sha256_json([{role: str(path) for role, path in tools.items()}, target, specs, code])
    remembered = read_cache(cache / "toolchains.json")
    record = remembered.get(entry)
    if not (isinstance(record, dict) and _still_true(record)):
        try:
            with scratch(cache) as folder:
                record = _examine(tools, target, specs, folder)
        except UnavailableError as error:
            hint = error.hint if isinstance(error, ProbeError) else install_hint(toolchain)
            raise UnavailableError(
                f"toolchain '{toolchain.name}': {error.message}", hint=hint
            ) from None
        write_cache(cache / "toolchains.json", entry, record)
    found = Detected(
        toolchain.name,
        toolchain.family,
        tools,
        record["version"],
        record["triple"],
        record["digest"],
        record["parts"],
        record["stamps"],
        record["opaque"],
        record["lists_assembly"],
        cache,
    )
    if record["family"] != toolchain.family and toolchain.family in FAMILIES:
        raise UnavailableError(
            f"toolchain '{toolchain.name}': {tools[DRIVER]} is {record['family'] or 'no compiler'}"
            f", but the toolchain's family is {toolchain.family}",
            hint=f"Use toolchain={record['family']} for it." if record["family"] else "",
        )
    if version_number(found.version) < version_number(toolchain.minimum_version):
        raise UnavailableError(
            f"toolchain '{toolchain.name}': {tools[DRIVER]} is version {found.version}, "
            f"but {toolchain.minimum_version} or newer is needed",
            hint=install_hint(toolchain),
        )
    return found


def glance(toolchain: Toolchain, cache: Path, *, role: str = DRIVER) -> Detected:
    """A toolchain's driver and the machine that it compiles for, without an identity."""
    if DRIVER not in toolchain.tools:
        raise UnavailableError(f"toolchain '{toolchain.name}' has no compiler")
    driver = _find(toolchain, role, toolchain.tools[DRIVER])
    target = [flag for flag in toolchain.flags if flag.startswith("--target=")]
    with scratch(cache) as folder:
        triple = query_tool([driver, *target, "-dumpmachine"], folder)
    tools = {DRIVER: driver}
    return Detected(toolchain.name, toolchain.family, tools, "", triple, "", cache=cache)


def check_compiles(found: Detected, arch: Arch) -> None:
    """Refuse a toolchain for another kind of CPU."""
    isa = found.triple.partition("-")[0]
    if isa != arch.isa:
        raise ConfigError(
            f"toolchain '{found.toolchain}' compiles {f'for {isa}' if isa else 'no C'}, "
            f"but arch '{arch.name}' is {arch.isa}",
            key="toolchain",
            hint="Leave `toolchain` out: every target has one that fits.",
        )


def check_compiles_for(found: Detected, target: Target) -> None:
    """Refuse a toolchain for another machine than that of the target's variant."""
    wanted, isa = target.machine.isa, found.triple.partition("-")[0]
    if wanted and isa != wanted:
        compiles = f"for {isa}" if isa else "no C"
        raise ConfigError(
            f"toolchain '{found.toolchain}' compiles {compiles}, but variant '{target.variant}' "
            f"of target '{target.name}' runs on {wanted}",
            key="toolchain",
            hint=f"Leave `toolchain` out: the variant has {target.machine.toolchain or 'its own'}.",
        )


def accepts(detected: Detected, flags: Sequence[str]) -> bool:
    """Whether the installed compiler compiles C and accepts these flags."""
    if DRIVER not in detected.tools:
        return False
    driver = str(detected.tools[DRIVER])
    question = [driver, *flags, "-fsyntax-only", "-x", "c", os.devnull]
    with scratch(detected.cache) as folder:
        return tool_output(question, folder).code == 0


def install_hint(toolchain: Toolchain) -> str:
    return install_commands(toolchain.name, toolchain.install)


def install_commands(name: str, install: Mapping[str, str]) -> str:
    """The install command for this system, or all known ones."""
    for system in (*_systems(), sys.platform):
        if system in install:
            return f"Install it: {install[system]}"
    known = "; ".join(f"{system}: {how}" for system, how in install.items())
    return f"Install it, e.g. {known}" if known else f"Install {name}."


def _systems() -> list[str]:
    """This system's name and those of related systems, nearest first."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    said = dict(re.findall(r'^(ID|ID_LIKE)="?([^"\n]*)"?$', text, re.MULTILINE))
    return f"{said.get('ID', '')} {said.get('ID_LIKE', '')}".split()


def _find(toolchain: Toolchain, role: str, name: str) -> Path:
    folders, unset = _searched(toolchain)
    found = shutil.which(name) or (shutil.which(name, path=os.pathsep.join(folders)))
    if not found:
        key = f"toolchain.tools.{role}"
        # A path is the user's choice: installing the usual tool would not create it.
        path = os.sep in name
        where = "there" if path else " or ".join(["on the PATH", *(f"in {f}" for f in folders)])
        if unset and not path:
            where += f", and {' and '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set"
        if path:
            hint = f"Have {key} name a program that can be run, or leave it away."
        elif role == CXX:
            hint = f"Install the package with '{name}'; that of the C compiler may lack it."
        else:
            hint = install_hint(toolchain)
        raise UnavailableError(
            f"toolchain '{toolchain.name}': no program '{name}' {where} ({key}={name})", hint=hint
        )
    return Path(found).absolute()


def _searched(toolchain: Toolchain) -> tuple[list[str], list[str]]:
    """The folders of `toolchain.search`, and the environment variables in it that are not set."""
    folders: list[str] = []
    unset: dict[str, None] = {}
    for entry in toolchain.search:
        names = re.findall(r"\$(\w+)", entry)
        missing = [name for name in names if not os.environ.get(name)]
        unset |= dict.fromkeys(missing)
        if not missing:
            folders.append(re.sub(r"\$(\w+)", lambda found: os.environ[found[1]], entry))
    return folders, list(unset)


def version_number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _examine(
    tools: Mapping[str, Path], target: Sequence[str], specs: Sequence[str], folder: Path
) -> dict[str, Any]:
    driver = tools[DRIVER]
    lookups: dict[str, str] = {}
    files = dict(tools)
    # First, since its error tells best what is wrong with a broken driver.
    family = _family(query_tool([driver, "--version"], folder))
    wrapper = resolve_wrapper(driver, target, folder)
    if wrapper.driver:
        files["driver"] = wrapper.driver
    cxx = "++" in driver.resolve().name or "++" in driver.name
    for program in (*_PROGRAMS, *(_CXX_PROGRAMS if cxx else ())):
        path = find_program([driver, *target], program, folder, lookups)
        if path:
            files[program] = path
    for tool in list(files.values()):
        files.update(shared_libraries(tool, folder))
    files |= wrapper.named
    for name in _START_FILES:
        said = query_tool([driver, *target, f"-print-file-name={name}"], folder)
        if Path(said).is_absolute():
            files[name] = Path(said)
    # Only GCC supports the long form; its short form is not the whole version.
    version = query_tool(
        [driver, "-dumpfullversion" if family == "gcc" else "-dumpversion"], folder
    )
    try:
        headers = _library_headers([driver, *target, *specs], folder)
        # Stamped before reading, so that a change in between is noticed next time.
        stamps = {str(path): file_stamp(path) for path in (*files.values(), *headers)}
        parts = {part: sha256_file(path) for part, path in sorted(files.items())}
    except OSError as error:
        raise UnavailableError(f"{error.filename} cannot be read: {error.strerror}") from None
    triple = query_tool([driver, *target, "-dumpmachine"], folder)
    return {
        "family": family,
        "version": version,
        "triple": triple,
        "digest": sha256_json({"version": version, "triple": triple, "parts": parts}),
        "parts": parts,
        "stamps": stamps,
        "lookups": lookups,
        "opaque": wrapper.opaque,
        "lists_assembly": family == "gcc" and _is_gnu(files.get("as"), folder),
    }


def _is_gnu(assembler: Path | None, folder: Path) -> bool:
    if assembler is None:
        return False
    return tool_output([assembler, "--version"], folder).stdout.startswith("GNU assembler")


def _library_headers(driver: Sequence[str | Path], folder: Path) -> list[Path]:
    """Folders of the C library's headers, which most systems install separately."""
    question = [*driver, "-M", "-include", "stdlib.h", "-x", "c", os.devnull]
    try:
        # In the root folder, since specs files are also searched in the current one.
        said = query_tool(question, folder, cwd=Path(os.sep))
    except ProbeError:
        raise
    except UnavailableError as error:
        raise UnavailableError(f"its C library is missing: {error.message}") from None
    return [Path(word) for word in said.split() if word.endswith("/stdlib.h")]


def _family(said: str) -> str:
    """Compiler family, by its version message."""
    if "clang" in said:
        return "clang"
    return "gcc" if "Free Software Foundation" in said else ""


def find_program(
    driver: Sequence[str | Path],
    program: str,
    folder: Path,
    lookups: dict[str, str] | None = None,
) -> Path | None:
    """The program that the driver would start; PATH-dependent results are added to `lookups`."""
    said = query_tool([*driver, f"-print-prog-name={program}"], folder)
    path = shutil.which(said)
    if path and lookups is not None:
        lookups[said] = path
    return Path(path) if path else None


def shared_libraries(tool: Path, folder: Path) -> dict[str, Path]:
    """The compiler's own shared libraries, which for clang hold most of the compiler."""
    if is_script(tool):
        return {}
    # --version, since a static tool ignores the loader's variable and really starts.
    traced = {"LD_TRACE_LOADED_OBJECTS": "1"}
    answer = tool_output([tool, "--version"], folder, environment=traced)
    if answer.code != 0:
        return {}
    return {
        name: path for name, path in loaded(answer.stdout).items() if name.startswith(_LIBRARIES)
    }


def loaded(listing: str) -> dict[str, Path]:
    """Name -> file of each library in the loader's listing."""
    pairs = re.findall(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", listing, re.MULTILINE)
    return {name: Path(path) for name, path in pairs}


def _still_true(record: Mapping[str, Any]) -> bool:
    try:
        stamps, lookups = record["stamps"], record["lookups"]
        same = all(file_stamp(path) == stamp for path, stamp in stamps.items())
        found = all(shutil.which(said) == path for said, path in lookups.items())
        told = [record[name] for name in ("opaque", "lists_assembly")]
        return same and found and all(isinstance(value, bool) for value in told)
    except (OSError, KeyError, TypeError, AttributeError):
        return False
