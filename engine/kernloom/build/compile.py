"""Artifacts from sources, a toolchain and an arch: input files and command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernloom.base.errors import ConfigError, nearest
from kernloom.build.flags import Reach, reach
from kernloom.build.headers import includes_outside_files, system_headers
from kernloom.build.linked import linked_files
from kernloom.build.listing import OutsideFiles, Stamp
from kernloom.build.probe import query_tool, scratch
from kernloom.build.toolchains import DRIVER, Detected, detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import BARE, Artifact
from kernloom.plan.source import Source

KERNEL = "kernel.so"
SPECS = "--specs="

DETERMINISTIC = ("-Wl,--build-id=none",)
SHARED_LIBRARY = ("-shared", "-fPIC")
# kl_parallel stays undefined: the loading process provides it.
_KERNEL_LIBRARIES = ("-Wl,--as-needed", "-lm")


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
    source: Source,
    toolchain: Toolchain,
    arch: Arch,
    variant: str,
    detected: Detected,
    *,
    role: str = DRIVER,
) -> Artifact:
    """The library of one kernel, compiled and linked in one step. `role`: of the tool that is the
    toolchain's driver."""
    groups = kernel_flags(toolchain, arch, variant)
    flags, libraries = libraries_last(groups)
    argv = (
        DRIVER,
        *flags,
        *source.flags,
        *SHARED_LIBRARY,
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
            source,
            toolchain,
            arch,
            variant,
            detect(toolchain, detected.cache, role=role),
            role=role,
        ),
    )


def _bare(source: Source, toolchain: Toolchain, variant: str) -> bool:
    """Whether a kernel certainly needs no link-time parts of the C library: reading them takes a
    fifth of the build of a small kernel."""
    told = toolchain.extra_flags or variant_flags(toolchain, variant)
    return toolchain.family == "gcc" and not told and not includes_outside_files(source.files)


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
        moved = linker_words(words)
        libraries = any(is_library(words[place]) for place in moved)
        first += [word for place, word in enumerate(words) if not (libraries and place in moved)]
        last += [word for place, word in enumerate(words) if libraries and place in moved]
    return first, last


def linker_words(words: Sequence[str]) -> set[int]:
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
    *,
    specs: bool = False,
    link: Mapping[str, Sequence[str]] | None = None,
) -> tuple[OutsideFiles, OutsideFiles, Mapping[str, Stamp]]:
    """The headers outside `files` that a command reads, the files that it links, and the stamps of
    these and of the compiler. `specs`: whether specs files are allowed, as C libraries for parts
    without an operating system need them. `link`: further flags of the linker, by their key."""
    if argv not in detected.known:
        # Equal for all kernels of a sweep, and for all objects of a program.
        alike = _without_names(argv, sources)
        if alike not in detected.known:
            reached = _reach_with_specs(groups, detected) if specs else reach(groups)
            reached = _with_linker_flags(reached, link or {})
            linked = linked_files(alike, (), reached, detected)
            detected.known[alike] = (reached, linked, {**detected.stamps, **linked.stamps})
        detected.known[argv] = detected.known[alike]
    found: tuple[Reach, OutsideFiles, Mapping[str, Stamp]] = detected.known[argv]
    reached, linked, stamps = found
    if not files:
        return OutsideFiles(), linked, stamps
    headers = system_headers(files, argv, reached, detected)
    return headers, linked, {**stamps, **headers.stamps} if headers.stamps else stamps


def _with_linker_flags(reached: Reach, link: Mapping[str, Sequence[str]]) -> Reach:
    """The reach with that of a program's own flags of the linker. Libraries by name are found where
    the linker looks anyway, and it lists them."""
    more = reach(link)
    folders = any(word.startswith("-L") for words in link.values() for word in words)
    return replace(
        reached,
        searches=reached.searches or folders,
        files=(*reached.files, *more.files),
        programs=(*reached.programs, *more.programs),
    )


def _reach_with_specs(groups: Mapping[str, Sequence[str]], detected: Detected) -> Reach:
    """The reach of flags, with the specs files that they name."""
    words = [word for flags in groups.values() for word in flags]
    with scratch(detected.cache) as folder:
        files = tuple(
            Path(query_tool([detected.tools[DRIVER], f"-print-file-name={name}"], folder))
            for name in (word.removeprefix(SPECS) for word in words if word.startswith(SPECS))
        )
    others = {
        key: [flag for flag in flags if not flag.startswith(SPECS)] for key, flags in groups.items()
    }
    found = reach(others)
    return replace(found, files=(*found.files, *filter(Path.is_file, files)))


def _without_names(argv: Sequence[str], sources: Sequence[str]) -> tuple[str, ...]:
    """A command without its sources and its output."""
    named = argv.index("-o") if "-o" in argv else len(argv)
    output = (named, named + 1)
    return tuple(w for place, w in enumerate(argv) if place not in output and w not in sources)


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
