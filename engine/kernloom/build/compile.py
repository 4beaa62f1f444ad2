"""From sources, a toolchain and an arch to artifacts: which files, and which command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernloom.build.artifact import Artifact
from kernloom.build.flags import Reach, reach
from kernloom.build.headers import looks_outside, system_headers
from kernloom.build.linked import linked_files
from kernloom.build.toolchains import DRIVER, Detected
from kernloom.config.schema import Arch, Toolchain
from kernloom.errors import ConfigError, UnavailableError, nearest
from kernloom.plan.source import Source

KERNEL = "kernel.so"
RUNNER = "runner"
COUNTER = "counter.so"

DETERMINISTIC = ("-Wl,--build-id=none",)
_LIBRARY = ("-shared", "-fPIC")
# kl_parallel stays undefined: the process that loads the library has it.
_KERNEL_LIBRARIES = ("-Wl,--as-needed", "-lm")
# What a kernel without headers can call beside its own functions, such as memset, the process that
# loads it has, too.
_BARE = ("-nodefaultlibs", "-lgcc")
_RUNNER_LIBRARIES = ("-rdynamic", "-ldl", "-lpthread", "-lm")
_BASELINES = {
    "x86_64": ("-march=x86-64",),
    "aarch64": ("-march=armv8-a",),
    "riscv64": ("-march=rv64gc", "-mabi=lp64d"),
}
"""The least a processor of an isa can do: a runner runs on all of them."""


def kernel_flags(toolchain: Toolchain, arch: Arch, variant: str) -> dict[str, Sequence[str]]:
    """The flags a kernel is compiled with, in order, under the keys they are configured by."""
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
    argv = (
        DRIVER,
        *(flag for flags in groups.values() for flag in flags),
        *_LIBRARY,
        *DETERMINISTIC,
        "-o",
        KERNEL,
        source.main,
        *_KERNEL_LIBRARIES,
        *(_BARE if _bare(source, toolchain, variant) else ()),
    )
    reached, linked = known(groups, argv, [source.main], detected)
    return Artifact(
        name=source.name,
        kind="kernel",
        output=KERNEL,
        main=source.main,
        files=source.files,
        argv=argv,
        tools={role: str(path) for role, path in detected.tools.items()},
        identity=detected.identity,
        headers=system_headers(source.files, argv, reached, detected),
        linked=linked,
        arch=arch.name,
        variant=variant,
        params=source.params,
        origins=source.origins,
    )


def _bare(source: Source, toolchain: Toolchain, variant: str) -> bool:
    """Whether a kernel certainly does without the C library's own link-time parts: reading those
    is a fifth of what it takes to build a small kernel."""
    told = toolchain.extra_flags or variant_flags(toolchain, variant)
    return toolchain.family == "gcc" and not told and not looks_outside(source.files)


def runner_artifact(
    toolchain: Toolchain, arch: Arch, variant: str, detected: Detected, share: Path
) -> Artifact:
    """The process that runs kernels; one for all arches of an isa, for it only differs by that."""
    native = share / "native"
    paths = sorted(
        path
        for folder in (native / "runner", native / "include")
        for path in folder.rglob("*")
        if path.suffix in (".c", ".h")
    )
    files = {str(path.relative_to(share)): path.read_text(encoding="utf-8") for path in paths}
    sources = [path for path in files if path.endswith(".c")]
    if not sources:
        raise UnavailableError(
            f"the runner's source is not in {native / 'runner'}", hint="Reinstall Kernloom."
        )
    groups = {
        "toolchain.flags": toolchain.flags,
        "arch.isa": _BASELINES.get(arch.isa, ()),
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
    reached, linked = known(groups, argv, sources, detected)
    return Artifact(
        name=RUNNER,
        kind="runner",
        output=RUNNER,
        main=next((path for path in sources if path.endswith("/main.c")), sources[0]),
        files=files,
        argv=argv,
        tools={role: str(path) for role, path in detected.tools.items()},
        identity=detected.identity,
        headers=system_headers(files, argv, reached, detected),
        linked=linked,
        arch=arch.name,
        variant=variant,
    )


def counter_artifact(toolchain: Toolchain, detected: Detected, isa: str, share: Path) -> Artifact:
    """QEMU's plugin that counts instructions, for this machine: QEMU runs here."""
    main = "native/qemu/counter.c"
    try:
        files = {
            path: (share / path).read_text(encoding="utf-8")
            for path in (main, "native/include/kernloom/marker.h")
        }
    except OSError as error:
        raise UnavailableError(
            f"the counter's source {error.filename} cannot be read", hint="Reinstall Kernloom."
        ) from None
    groups = {"toolchain.flags": toolchain.flags, "arch.isa": _BASELINES.get(isa, ())}
    argv = (
        DRIVER,
        *(flag for flags in groups.values() for flag in flags),
        "-Inative/include",
        *_LIBRARY,
        *DETERMINISTIC,
        "-o",
        COUNTER,
        main,
    )
    reached, linked = known(groups, argv, [main], detected)
    return Artifact(
        name="counter",
        kind="plugin",
        output=COUNTER,
        main=main,
        files=files,
        argv=argv,
        tools={role: str(path) for role, path in detected.tools.items()},
        identity=detected.identity,
        headers=system_headers(files, argv, reached, detected),
        linked=linked,
        arch=isa,
    )


def known(
    groups: Mapping[str, Sequence[str]],
    argv: tuple[str, ...],
    sources: Sequence[str],
    detected: Detected,
) -> tuple[Reach, dict[str, str]]:
    """What a command reaches and links: the same for all kernels of a sweep."""
    if argv not in detected.known:
        reached = reach(groups)
        detected.known[argv] = (reached, linked_files(argv, sources, reached, detected))
    found: tuple[Reach, dict[str, str]] = detected.known[argv]
    return found


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
