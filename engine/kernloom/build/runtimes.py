"""All runtimes that this machine's toolchains can build: the targets of plain `scons`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from kernloom.base.errors import ConfigError, UnavailableError, nearest
from kernloom.base.places import Places
from kernloom.build.arches import host_isa, is_native, with_vector_bytes
from kernloom.build.built_for import BuiltFor, is_for
from kernloom.build.program import DECLARATION, Program
from kernloom.build.programs import Programs
from kernloom.build.toolchains import Detected, detect
from kernloom.config.convert import convert
from kernloom.config.groups import groups_of
from kernloom.config.schema import Arch, Caches, Toolchain
from kernloom.plan.artifact import Artifact

T = TypeVar("T")

HOST_TOOLCHAINS = ("gcc", "clang")
"""Compilers for the host, by preference."""


@dataclass(frozen=True)
class Runtime:
    """One file of a program, and what it is built for."""

    program: str
    arch: str
    toolchain: str
    artifact: Artifact


@dataclass(frozen=True)
class Runtimes:
    """The runtimes to build, and what is missing to build more."""

    programs: Mapping[str, Program]
    built: tuple[Runtime, ...]
    unavailable: tuple[UnavailableError, ...]
    """Why some toolchains, or tools for some programs, cannot be used."""

    @property
    def artifacts(self) -> list[Artifact]:
        return [runtime.artifact for runtime in self.built]


def all_runtimes(places: Places) -> Runtimes:
    """Every program for each arch and variant that a toolchain on this machine can build."""
    programs = Programs(places.roots)
    built: list[Runtime] = []
    unavailable: dict[str, UnavailableError] = {}
    try:
        beside = host_programs(programs, places, lambda toolchain: detect(toolchain, places.cache))
        built += [Runtime(name, a.arch, a.identity.toolchain, a) for name, a in beside.items()]
    except UnavailableError as error:
        unavailable[str(error)] = error
    arches = shipped(places, "arch", Arch)
    toolchains = shipped(places, "toolchain", Toolchain)
    targets = [*(arch.name for arch in arches), *(toolchain.name for toolchain in toolchains)]
    _check_names(programs.declared.values(), targets)
    for problem in _without_arch(programs.declared.values(), {arch.isa for arch in arches}):
        unavailable[str(problem)] = problem
    for toolchain in toolchains:
        try:
            detected = detect(toolchain, places.cache)
        except UnavailableError as error:
            unavailable[str(error)] = error
            continue
        for arch, program in product(arches, programs.declared.values()):
            fits = program.runs_on == "target" and is_for(program, arch, detected.triple)
            if not fits or toolchain.family not in arch.flags:
                continue
            try:
                built += [
                    Runtime(program.name, arch.name, toolchain.name, artifact)
                    for variant in toolchain.variants
                    for artifact in programs.ends(
                        program.name, BuiltFor(toolchain, arch, variant, detected)
                    )
                ]
            except UnavailableError as error:
                unavailable[str(error)] = error
    return Runtimes(programs.declared, tuple(built), tuple(unavailable.values()))


def _check_names(programs: Iterable[Program], others: Sequence[str]) -> None:
    """Refuse a program whose name is another target of `scons` already."""
    for program in programs:
        if program.name in others:
            raise ConfigError(
                f"program '{program.name}' has the name of an arch or a toolchain",
                hint=f"Give it another name in its {DECLARATION}; its `output` may stay.",
            )


def _without_arch(programs: Iterable[Program], isas: Collection[str]) -> Iterator[UnavailableError]:
    """Why programs for ISAs that no arch has are not built."""
    for program in programs:
        if program.isas and not {*program.isas} & {*isas, host_isa()}:
            yield UnavailableError(
                f"program '{program.name}': no arch has the ISA '{program.isas[0]}'",
                hint=nearest(program.isas[0], isas),
            )


def host_programs(
    programs: Programs, places: Places, find: Callable[[Toolchain], Detected]
) -> dict[str, Artifact]:
    """Name -> program that runs beside an emulator. Built by this machine's own compiler, since
    emulators run here."""
    problem: UnavailableError | None = None
    groups = groups_of(places)
    here = host_arch()
    wanted = [
        program.name
        for program in programs.declared.values()
        if program.runs_on == "host" and here.isa in (program.isas or (here.isa,))
    ]
    for name in HOST_TOOLCHAINS:
        toolchain = convert(Toolchain, groups.read("toolchain", name), f"toolchain/{name}")
        try:
            built_for = BuiltFor(toolchain, here, "release", find(toolchain))
            return {program: programs.artifact(program, built_for) for program in wanted}
        except UnavailableError as error:
            problem = problem or error
    raise problem or UnavailableError("this machine has no compiler of its own")


def host_arch() -> Arch:
    """This machine as an arch for programs that run beside emulators."""
    isa = host_isa()
    return Arch(isa, isa, flags={}, vector_bytes=4, registers=4, caches=Caches(0, 0, 0))


def shipped(places: Places, group: str, cls: type[T]) -> list[T]:
    """The options of a config group as written, user files shadowing shipped ones. The arch
    `native` is skipped: a toolchain resolves it."""
    groups = groups_of(places)
    read = [groups.read(group, name) for name in groups.options(group)]
    return [
        convert(cls, with_vector_bytes(data) if group == "arch" else data, group)
        for data in read
        if not (group == "arch" and is_native(data))
    ]
