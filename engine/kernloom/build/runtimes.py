"""All runtimes that this machine's toolchains can build: the targets of plain `scons`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kernloom.base.errors import UnavailableError
from kernloom.base.places import Places
from kernloom.build.arches import host_isa, is_native, with_vector_bytes
from kernloom.build.programs import BuiltFor, Program, Programs, is_for
from kernloom.build.toolchains import Detected, detect
from kernloom.config.convert import convert
from kernloom.config.groups import groups_of
from kernloom.config.schema import Arch, Caches, Toolchain
from kernloom.plan.artifact import Artifact

if TYPE_CHECKING:
    pass

T = TypeVar("T")

HOST_TOOLCHAINS = ("gcc", "clang")
"""Compilers for the host, by preference."""


@dataclass(frozen=True)
class Runtimes:
    """The runtimes to build, and the toolchains that are missing to build more."""

    programs: Mapping[str, Program]
    artifacts: tuple[Artifact, ...]
    unavailable: dict[str, UnavailableError]
    """Toolchain -> why it cannot be used."""


def all_runtimes(places: Places) -> Runtimes:
    """Every program for each arch and variant that a toolchain on this machine can build."""
    programs = Programs(places.roots)
    on_target = [p for p in programs.declared.values() if p.runs_on == "target"]
    artifacts: list[Artifact] = []
    with contextlib.suppress(UnavailableError):
        artifacts += host_programs(
            programs, places, lambda toolchain: detect(toolchain, places.cache)
        ).values()
    unavailable: dict[str, UnavailableError] = {}
    arches = _shipped(places, "arch", Arch)
    for toolchain in _shipped(places, "toolchain", Toolchain):
        try:
            detected = detect(toolchain, places.cache)
        except UnavailableError as error:
            unavailable[toolchain.name] = error
            continue
        for arch in arches:
            if toolchain.family not in arch.flags:
                continue
            for program in on_target:
                if is_for(program, arch, detected.triple):
                    for variant in toolchain.variants:
                        built_for = BuiltFor(toolchain, arch, variant, detected)
                        artifacts += programs.ends(program.name, built_for)
    return Runtimes(programs.declared, tuple(artifacts), unavailable)


def host_programs(
    programs: Programs, places: Places, find: Callable[[Toolchain], Detected]
) -> dict[str, Artifact]:
    """Name -> program that runs beside an emulator. Built by this machine's own compiler, since
    emulators run here."""
    problem: UnavailableError | None = None
    groups = groups_of(places)
    isa = host_isa()
    here = Arch(isa, isa, flags={}, vector_bytes=4, registers=4, caches=Caches(0, 0, 0))
    for name in HOST_TOOLCHAINS:
        toolchain = convert(Toolchain, groups.read("toolchain", name), f"toolchain/{name}")
        try:
            built_for = BuiltFor(toolchain, here, "release", find(toolchain))
            return {
                program.name: programs.artifact(program.name, built_for)
                for program in programs.declared.values()
                if program.runs_on == "host"
            }
        except UnavailableError as error:
            problem = problem or error
    raise problem or UnavailableError("this machine has no compiler of its own")


def _shipped(places: Places, group: str, cls: type[T]) -> list[T]:
    """The options of a config group as written, user files shadowing shipped ones. The arch
    `native` is skipped: a toolchain resolves it."""
    groups = groups_of(places)
    read = [groups.read(group, name) for name in groups.options(group)]
    return [
        convert(cls, with_vector_bytes(data) if group == "arch" else data, group)
        for data in read
        if not (group == "arch" and is_native(data))
    ]
