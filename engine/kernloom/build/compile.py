"""Artifacts from sources, a toolchain and an arch: input files and command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernloom.base.errors import ConfigError, UnavailableError, nearest
from kernloom.base.files import files_below
from kernloom.build.flags import Reach, reach
from kernloom.build.headers import includes_outside_files, system_headers
from kernloom.build.linked import linked_files
from kernloom.build.listing import OutsideFiles, Stamp
from kernloom.build.toolchains import DRIVER, Detected, detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import BARE, Artifact
from kernloom.plan.source import Source

KERNEL = "kernel.so"
RUNNER = "runner"
COUNTER = "counter.so"
SUPERVISOR = "supervisor"

DETERMINISTIC = ("-Wl,--build-id=none",)
_LIBRARY = ("-shared", "-fPIC")
# kl_parallel stays undefined: the loading process provides it.
_KERNEL_LIBRARIES = ("-Wl,--as-needed", "-lm")
_RUNNER_LIBRARIES = ("-rdynamic", "-ldl", "-lpthread", "-lm")
_OLDEST_PROCESSOR = {
    "x86_64": ("-march=x86-64",),
    "aarch64": ("-march=armv8-a",),
    "riscv64": ("-march=rv64gc", "-mabi=lp64d"),
}
"""ISA -> flags of its oldest supported processor: a runner must run on all of them."""


def kernel_flags(toolchain: Toolchain, arch: Arch, variant: str) -> dict[str, Sequence[str]]:
    """The flags of a kernel in order, grouped by config key."""
    return {
        "toolchain.flags": toolchain.flags,
        f"arch.flags.{toolchain.family}": arch_flags(arch, toolchain),
        "toolchain.kernel_flags": toolchain.kernel_flags,
        f"toolchain.variants.{variant}": variant_flags(toolchain, variant),
        "toolchain.extra_flags": toolchain.extra_flags,
    }


def kernel_artifact(
    source: Source, toolchain: Toolchain, arch: Arch, variant: str, detected: Detected
) -> Artifact:
    """The library of one kernel, compiled and linked in one step."""
    groups = kernel_flags(toolchain, arch, variant)
    flags, libraries = libraries_last(groups)
    argv = (
        DRIVER,
        *flags,
        *_LIBRARY,
        *DETERMINISTIC,
        "-o",
        KERNEL,
        source.main,
        *libraries,
        *_KERNEL_LIBRARIES,
        *(BARE if _bare(source, toolchain, variant) else ()),
    )
    headers, linked, stamps = read_outside(groups, argv, [source.main], source.files, detected)
    return Artifact(
        name=source.name,
        kind="kernel",
        output=KERNEL,
        main=source.main,
        files=source.files,
        argv=argv,
        tools={role: str(path) for role, path in detected.tools.items()},
        identity=detected.identity,
        headers=headers.hashes,
        linked=linked.hashes,
        arch=arch.name,
        variant=variant,
        params=source.params,
        origins=source.origins,
        stamps=stamps,
        assembles=headers.assembles,
        lists_assembly=detected.lists_assembly,
        redeclare=lambda: kernel_artifact(
            source, toolchain, arch, variant, detect(toolchain, detected.cache)
        ),
    )


def _bare(source: Source, toolchain: Toolchain, variant: str) -> bool:
    """Whether a kernel certainly needs no link-time parts of the C library: reading them takes a
    fifth of the build of a small kernel."""
    told = toolchain.extra_flags or variant_flags(toolchain, variant)
    return toolchain.family == "gcc" and not told and not includes_outside_files(source.files)


def runner_artifact(
    toolchain: Toolchain, arch: Arch, variant: str, detected: Detected, share: Path
) -> Artifact:
    """The process that runs kernels; one for all arches of an isa, since only the isa matters."""
    native = share / "native"
    paths = sorted(
        path
        for folder in (native / "runner", native / "include")
        for path in files_below(folder, (".c", ".h"))
    )
    files = {str(path.relative_to(share)): path.read_text(encoding="utf-8") for path in paths}
    sources = [path for path in files if path.endswith(".c")]
    if not sources:
        raise UnavailableError(
            f"the runner's source is not in {native / 'runner'}", hint="Reinstall Kernloom."
        )
    groups = {
        "toolchain.flags": toolchain.flags,
        "arch.isa": _OLDEST_PROCESSOR.get(arch.isa, ()),
        f"toolchain.variants.{variant}": variant_flags(toolchain, variant),
    }
    argv = (
        DRIVER,
        *(flag for flags in groups.values() for flag in flags),
        "-Inative/include",
        *DETERMINISTIC,
        "-o",
        RUNNER,
        *sources,
        *_RUNNER_LIBRARIES,
    )
    headers, linked, stamps = read_outside(groups, argv, sources, files, detected)
    return Artifact(
        name=RUNNER,
        kind="runner",
        output=RUNNER,
        main=next((path for path in sources if path.endswith("/main.c")), sources[0]),
        files=files,
        argv=argv,
        tools={role: str(path) for role, path in detected.tools.items()},
        identity=detected.identity,
        headers=headers.hashes,
        linked=linked.hashes,
        arch=arch.name,
        variant=variant,
        stamps=stamps,
        lists_assembly=detected.lists_assembly,
        redeclare=lambda: runner_artifact(
            toolchain, arch, variant, detect(toolchain, detected.cache), share
        ),
    )


def counter_artifact(toolchain: Toolchain, detected: Detected, isa: str, share: Path) -> Artifact:
    """QEMU's instruction counter plugin, for this machine: QEMU runs here."""
    return _host_program(_COUNTER, toolchain, detected, isa, share)


def supervisor_artifact(
    toolchain: Toolchain, detected: Detected, isa: str, share: Path
) -> Artifact:
    """The program that starts emulators and kills leftover processes, for this machine."""
    return _host_program(_SUPERVISOR, toolchain, detected, isa, share)


@dataclass(frozen=True)
class _HostProgram:
    """A program of one source for the host itself."""

    name: str
    kind: Literal["plugin", "supervisor"]
    output: str
    files: tuple[str, ...]
    """The source first, then the headers beside it."""
    flags: tuple[str, ...] = ()


_COUNTER = _HostProgram(
    "counter",
    "plugin",
    COUNTER,
    ("native/qemu/counter.c", "native/include/kernloom/marker.h"),
    _LIBRARY,
)
_SUPERVISOR = _HostProgram(
    "supervisor",
    "supervisor",
    SUPERVISOR,
    ("native/supervisor/main.c", "native/include/kernloom/supervisor.h"),
)


def _host_program(
    program: _HostProgram, toolchain: Toolchain, detected: Detected, isa: str, share: Path
) -> Artifact:
    try:
        files = {path: (share / path).read_text(encoding="utf-8") for path in program.files}
    except OSError as error:
        raise UnavailableError(
            f"the {program.name}'s source {error.filename} cannot be read",
            hint="Reinstall Kernloom.",
        ) from None
    main = program.files[0]
    groups = {"toolchain.flags": toolchain.flags, "arch.isa": _OLDEST_PROCESSOR.get(isa, ())}
    argv = (
        DRIVER,
        *(flag for flags in groups.values() for flag in flags),
        "-Inative/include",
        *program.flags,
        *DETERMINISTIC,
        "-o",
        program.output,
        main,
    )
    headers, linked, stamps = read_outside(groups, argv, [main], files, detected)
    return Artifact(
        name=program.name,
        kind=program.kind,
        output=program.output,
        main=main,
        files=files,
        argv=argv,
        tools={role: str(path) for role, path in detected.tools.items()},
        identity=detected.identity,
        headers=headers.hashes,
        linked=linked.hashes,
        arch=isa,
        stamps=stamps,
        lists_assembly=detected.lists_assembly,
        redeclare=lambda: _host_program(
            program, toolchain, detect(toolchain, detected.cache), isa, share
        ),
    )


def libraries_last(
    groups: Mapping[str, Sequence[str]],
) -> tuple[list[str], list[str]]:
    """Split flags into those before and those after the sources: a linker takes only missing
    symbols from a library when it reaches it.

    Linker flags move with the libraries, since some apply to the libraries after them.
    """
    first: list[str] = []
    last: list[str] = []
    for words in groups.values():
        moved = _linker_words(words)
        libraries = any(is_library(words[place]) for place in moved)
        first += [word for place, word in enumerate(words) if not (libraries and place in moved)]
        last += [word for place, word in enumerate(words) if libraries and place in moved]
    return first, last


def _linker_words(words: Sequence[str]) -> set[int]:
    """Positions of the words for the linker, with their arguments."""
    places: set[int] = set()
    for place, word in enumerate(words):
        if word.startswith(("-Wl,", "-l")) or word == "-Xlinker" or is_library(word):
            places.add(place)
            if word in ("-l", "-Xlinker") and place + 1 < len(words):
                places.add(place + 1)
    return places


def is_library(word: str) -> bool:
    if word.startswith("-"):
        return word.startswith("-l")
    return word.endswith((".a", ".so")) or ".so." in word


def read_outside(
    groups: Mapping[str, Sequence[str]],
    argv: tuple[str, ...],
    sources: Sequence[str],
    files: Mapping[str, str],
    detected: Detected,
) -> tuple[OutsideFiles, OutsideFiles, Mapping[str, Stamp]]:
    """The headers outside `files` that a command reads, the files that it links, and the stamps of
    these and of the compiler."""
    if argv not in detected.known:
        # Equal for all kernels of a sweep.
        reached = reach(groups)
        linked = linked_files(argv, sources, reached, detected)
        detected.known[argv] = (reached, linked, {**detected.stamps, **linked.stamps})
    found: tuple[Reach, OutsideFiles, Mapping[str, Stamp]] = detected.known[argv]
    reached, linked, stamps = found
    headers = system_headers(files, argv, reached, detected)
    return headers, linked, {**stamps, **headers.stamps} if headers.stamps else stamps


def arch_flags(arch: Arch, toolchain: Toolchain) -> tuple[str, ...]:
    try:
        return arch.flags[toolchain.family]
    except KeyError:
        raise ConfigError(
            f"arch '{arch.name}' has no flags for compilers of the family '{toolchain.family}'",
            key="arch.flags",
            hint=nearest(toolchain.family, arch.flags),
        ) from None


def variant_flags(toolchain: Toolchain, variant: str) -> tuple[str, ...]:
    try:
        return toolchain.variants[variant]
    except KeyError:
        raise ConfigError(
            f"toolchain '{toolchain.name}' cannot build the variant '{variant}'",
            key="target.variant",
            hint=nearest(variant, toolchain.variants),
        ) from None
