"""Machines of an accelerator's variants: what they are built by, and whether that is here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kernloom.base.places import Places
from kernloom.build.arches import host_isa, with_vector_bytes
from kernloom.build.emulators import find_emulator
from kernloom.build.toolchains import Detected, check_compiles_for, detect
from kernloom.config.convert import convert
from kernloom.config.groups import Groups, groups_of
from kernloom.config.platforms import PLATFORMS, Platform, find_platform
from kernloom.config.schema import Arch, Target, Toolchain

NO_RUNTIME = "none"
"""The runtime of targets without task runtimes."""


def machine_arch(target: Target, arch: Arch) -> Arch:
    """The arch that programs are built for: with the isa of the variant's machine, if the target
    names machines, because an accelerator's programs run on a CPU."""
    if not target.machines:
        return arch
    return replace(arch.compiled, isa=target.machine.isa or host_isa())


@dataclass(frozen=True)
class FoundMachine:
    """The toolchain and platform of a variant, found on this machine."""

    toolchain: Toolchain
    detected: Detected
    platform: Platform
    roots: tuple[Path, ...]
    """Folders with native/: Kernloom's, the project's, and that of the platform's package."""


@dataclass(frozen=True)
class AcceleratorVariant:
    """One variant of an accelerator."""

    target: Target
    """With this variant."""
    arch: Arch
    toolchain: str
    """The target's own toolchain."""

    @classmethod
    def of(cls, target: Target, variant: str, arch: Arch, toolchain: str) -> AcceleratorVariant:
        return cls(replace(target, variant=variant), arch, toolchain)

    @property
    def place(self) -> str:
        return f"{self.arch.name}/{self.target.variant}"

    def find(self, places: Places) -> FoundMachine:
        """What it is built by, or UnavailableError with the reason and what to install."""
        machine = self.target.machine
        known = PLATFORMS.knows(machine.platform)
        platform = find_platform(machine.platform) if known else None
        folder = platform.folder if platform else None
        groups = groups_of(places)
        if folder:
            groups = Groups([*places.folders("configs"), folder / "configs"])
        name = (platform.toolchain if platform else "") or machine.toolchain or self.toolchain
        toolchain = convert(Toolchain, groups.read("toolchain", name), f"toolchain/{name}")
        detected = detect(toolchain, places.cache)
        check_compiles_for(detected, self.target)
        if machine.emulator:
            find_emulator(machine.emulator, places.cache)
        roots = (*places.roots, *([folder] if folder else []))
        return FoundMachine(toolchain, detected, find_platform(machine.platform), roots)


def variants_of(groups: Groups, name: str) -> list[AcceleratorVariant]:
    """The variants of a target that names the machines of its variants; of others none."""
    data = groups.read("target", name)
    section, chosen = data.get("target") or {}, groups.defaults(data)
    if not section.get("machines") or not {"arch", "toolchain"} <= chosen.keys():
        return []
    target = convert(Target, section, f"target/{name}")
    arch = convert(Arch, with_vector_bytes(groups.read("arch", chosen["arch"])), "arch")
    return [
        AcceleratorVariant.of(target, variant, arch, chosen["toolchain"])
        for variant in target.variants
    ]
