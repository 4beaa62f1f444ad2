"""What a program is built for: its compiler, and the flags that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernloom.base.errors import ConfigError, nearest
from kernloom.build.compile import kernel_flags, linker_words, variant_flags
from kernloom.build.program import Program, filled
from kernloom.build.toolchains import CXX, DRIVER, Detected, detect, lacks_tool, with_driver
from kernloom.config.schema import Arch, Toolchain

_OLDEST_PROCESSOR = {
    "x86_64": ("-march=x86-64",),
    "aarch64": ("-march=armv8-a",),
    "riscv64": ("-march=rv64gc", "-mabi=lp64d"),
}
"""ISA -> flags of its oldest supported processor: a program for an ISA must run on all of them."""
_COMPILERS = {"armv7m": "arm", "rv64": "riscv64"}
"""ISA of an arch without an operating system -> prefix of the triple of its compilers."""


@dataclass(frozen=True)
class BuiltFor:
    """What a program is built for, and by which compiler."""

    toolchain: Toolchain
    arch: Arch
    variant: str
    detected: Detected
    runtime: str = "none"

    def fill(self, text: str) -> str:
        """A text of a declaration with its placeholders replaced."""
        return filled(
            text,
            {
                "isa": self.arch.isa,
                "arch": self.arch.name,
                "variant": self.variant,
                "runtime": self.runtime,
            },
        )


def compiler_of(isa: str, otherwise: str) -> str:
    """Prefix of the triple of compilers for an ISA without an operating system."""
    return _COMPILERS.get(isa, otherwise)


def is_for(program: Program, arch: Arch, triple: str, *, accelerator: bool = False) -> bool:
    """Whether a compiler with this triple builds a program for an arch; `accelerator`: for the
    machine on which an accelerator's programs run."""
    isa, _, system = triple.partition("-")
    if program.isas and arch.isa not in program.isas:
        return False
    if program.family == "accelerator" and not accelerator:
        return False
    wanted = compiler_of(arch.isa, arch.isa) if program.system == "none" else arch.isa
    return isa == wanted and ("linux" in system) == (program.system == "linux")


def compiler(program: Program, built_for: BuiltFor, *, cxx: bool) -> tuple[Toolchain, Detected]:
    """The toolchain with the tool for a program as its driver; `cxx`: with the flags of C++."""
    toolchain, role = driven(program, built_for.toolchain, cxx=cxx)
    if role == DRIVER:
        return toolchain, built_for.detected
    return toolchain, detect(toolchain, built_for.detected.cache, role=role)


def driven(program: Program, toolchain: Toolchain, *, cxx: bool) -> tuple[Toolchain, str]:
    """The toolchain with the tool for a program as its driver, and the tool's role."""
    role = CXX if cxx and not program.tool else program.role
    if role == DRIVER:
        return toolchain, role
    if role not in toolchain.tools and role != CXX:
        raise ConfigError(
            lacks_tool(f"program '{program.name}'", role, toolchain),
            hint=nearest(role, {*toolchain.tools, CXX}),
        )
    # With another identity, so that updating it leaves programs of other tools alone.
    return with_driver(toolchain, role, f"program '{program.name}'", cxx=cxx), role


def redetected(built_for: BuiltFor) -> BuiltFor:
    found = detect(built_for.toolchain, built_for.detected.cache)
    return replace(built_for, detected=found)


def program_flags(program: Program, built_for: BuiltFor) -> dict[str, Sequence[str]]:
    """The flags of a program, grouped by config key."""
    toolchain, arch, variant = built_for.toolchain, built_for.arch, built_for.variant
    if "arch" in program.varies_by:
        return kernel_flags(toolchain, arch, variant)
    groups: dict[str, Sequence[str]] = {"toolchain.flags": toolchain.flags}
    if "isa" in program.varies_by:
        groups["arch.isa"] = _OLDEST_PROCESSOR.get(arch.isa, ())
    if "variant" in program.varies_by:
        groups[f"toolchain.variants.{variant}"] = variant_flags(toolchain, variant)
    return groups


def compiling(words: Sequence[str]) -> list[str]:
    """Flags without those for the linker, and without its choice, which Clang warns of."""
    linking = linker_words(words)
    return [
        word
        for place, word in enumerate(words)
        if place not in linking and not word.startswith("-fuse-ld=")
    ]
