"""All runtimes that this machine's toolchains can build: the targets of plain `scons`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

from kernloom.base.errors import ConfigError, KernloomError, UnavailableError, nearest
from kernloom.base.places import Places
from kernloom.build.arches import host_isa, is_native, with_vector_bytes
from kernloom.build.built_for import BuiltFor, is_for
from kernloom.build.listing import stamping_once
from kernloom.build.machines import NO_RUNTIME, AcceleratorVariant, machine_arch, variants_of
from kernloom.build.program import DECLARATION, Program
from kernloom.build.programs import Programs
from kernloom.build.toolchains import Detected, detect
from kernloom.config.convert import convert
from kernloom.config.groups import groups_of
from kernloom.config.platforms import PLATFORMS, find_platform
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
class LeftOut:
    """What cannot be built here: by a toolchain, for a program, or both."""

    error: UnavailableError
    toolchain: str = ""
    """Empty: this machine's own compiler, whichever it is; with a program, any toolchain."""
    program: str = ""
    """Empty: any program."""
    place: str = ""
    """Part of the build matrix: `a5/onboard`."""


@dataclass(frozen=True)
class Runtimes:
    """The runtimes to build, and what is missing to build more."""

    programs: Mapping[str, Program]
    arches: tuple[str, ...]
    toolchains: tuple[str, ...]
    built: tuple[Runtime, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def unavailable(self) -> list[UnavailableError]:
        """Why some toolchains, or tools for some programs, cannot be used."""
        return _errors(self.left_out)

    def missing_for(self, name: str) -> list[UnavailableError]:
        """Why nothing is built for a program, arch or toolchain; where the reason cannot be told,
        all that may be."""
        own = [left for left in self.left_out if name in (left.toolchain, left.program)]
        if not own and name not in self.toolchains:
            own = [left for left in self.left_out if not left.program]
        return _errors(own)

    @property
    def artifacts(self) -> list[Artifact]:
        return [runtime.artifact for runtime in self.built]


def _errors(left_out: Iterable[LeftOut]) -> list[UnavailableError]:
    """Each different error once, with the places it applies to."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for left in left_out:
        places.setdefault((left.error.message, left.error.hint), {})[left.place] = None
    return [
        UnavailableError(f"{_prefix(named)}{message}", hint=hint)
        for (message, hint), named in places.items()
    ]


def _prefix(named: Iterable[str]) -> str:
    found = ", ".join(filter(None, named))
    return f"{found}: " if found else ""


def all_runtimes(places: Places) -> Runtimes:
    """Every program for each arch and variant that a toolchain on this machine can build."""
    with stamping_once():
        return _all_runtimes(places)


def _all_runtimes(places: Places) -> Runtimes:
    programs = Programs(places.roots)
    arches = shipped(places, "arch", Arch)
    toolchains = shipped(places, "toolchain", Toolchain)
    arch_names = tuple(arch.name for arch in arches)
    toolchain_names = tuple(toolchain.name for toolchain in toolchains)
    _check_names(programs, {*arch_names, *toolchain_names})
    built: list[Runtime] = []
    left_out = [*_without_arch(programs, {arch.isa for arch in arches} | {host_isa()})]
    with _noting(left_out, LeftOut):
        beside = host_programs(programs, places, lambda toolchain: detect(toolchain, places.cache))
        built += [Runtime(name, a.arch, a.identity.toolchain, a) for name, a in beside.items()]
    accelerators = _accelerators(places, left_out)
    of_accelerators = {variant.target.variant for variant in accelerators}
    cpus = [arch for arch in arches if arch.topology is None]
    for toolchain in toolchains:
        variants = [name for name in toolchain.variants if name not in of_accelerators]
        if not variants:
            continue
        with _noting(left_out, partial(LeftOut, toolchain=toolchain.name)):
            built += _of_toolchain(toolchain, variants, cpus, programs, places, left_out)
    read = {tuple(places.roots): programs}
    for variant in accelerators:
        with _noting(left_out, partial(LeftOut, place=variant.place), KernloomError):
            built += _of_variant(variant, places, read, left_out)
    return Runtimes(programs.declared, arch_names, toolchain_names, tuple(built), tuple(left_out))


@contextmanager
def _noting(
    left_out: list[LeftOut],
    note: Callable[[UnavailableError], LeftOut],
    kind: type[KernloomError] = UnavailableError,
) -> Iterator[None]:
    """Note an error of this kind, and go on."""
    try:
        yield
    except kind as error:
        left_out.append(note(UnavailableError(error.message, hint=error.hint)))


def _of_toolchain(
    toolchain: Toolchain,
    variants: Sequence[str],
    arches: Sequence[Arch],
    programs: Programs,
    places: Places,
    left_out: list[LeftOut],
) -> list[Runtime]:
    """The programs for CPUs and bare-metal parts that a toolchain can build."""
    detected = detect(toolchain, places.cache)
    built: list[Runtime] = []
    for arch, program in product(arches, programs.declared.values()):
        fits = program.runs_on == "target" and is_for(program, arch, detected.triple)
        if not fits or toolchain.family not in arch.flags:
            continue
        with _noting(left_out, partial(LeftOut, toolchain=toolchain.name, program=program.name)):
            built += [
                Runtime(program.name, arch.name, toolchain.name, artifact)
                for variant in variants
                for artifact in programs.ends(
                    program.name, BuiltFor(toolchain, arch, variant, detected)
                )
            ]
    return built


def _accelerators(places: Places, left_out: list[LeftOut]) -> list[AcceleratorVariant]:
    """Every variant of every target that is an accelerator with programs of its own."""
    groups = groups_of(places)
    found: list[AcceleratorVariant] = []
    for name in groups.options("target"):
        with _noting(left_out, partial(LeftOut, place=f"target/{name}"), KernloomError):
            found += variants_of(groups, name)
    return found


def _of_variant(
    variant: AcceleratorVariant,
    places: Places,
    read: dict[tuple[Path, ...], Programs],
    left_out: list[LeftOut],
) -> list[Runtime]:
    """The programs of one variant of an accelerator, for each runtime; `read`: by folders, the
    programs that are declared there."""
    found = variant.find(places)
    if found.roots not in read:
        read[found.roots] = Programs(found.roots)
    programs = read[found.roots]
    arch = machine_arch(variant.target, variant.arch)
    others = {find_platform(name).program for name in PLATFORMS.names()} - {found.platform.program}
    runtimes = [name for name in groups_of(places).options("runtime") if name != NO_RUNTIME]
    built: list[Runtime] = []
    for program, runtime in product(programs.declared.values(), runtimes):
        fits = program.runs_on == "target" and program.name not in others
        if not fits or not is_for(program, arch, found.detected.triple, accelerator=True):
            continue
        place = f"{variant.place}/{runtime}"
        with _noting(left_out, partial(LeftOut, program=program.name, place=place), KernloomError):
            built_for = BuiltFor(
                found.toolchain, arch, variant.target.variant, found.detected, runtime
            )
            built += [
                Runtime(program.name, arch.name, found.toolchain.name, artifact)
                for artifact in programs.ends(program.name, built_for)
            ]
    return built


def _check_names(programs: Programs, others: Collection[str]) -> None:
    """Refuse a program whose name is another target of `scons` already."""
    for name in programs.declared:
        if name in others:
            raise ConfigError(
                f"program '{name}' has the name of an arch or a toolchain",
                key=programs.key(name, "name"),
                hint=f"Give it another name in its {DECLARATION}; its `output` may stay.",
            )


def _without_arch(programs: Programs, isas: Collection[str]) -> Iterator[LeftOut]:
    """Why programs are not built for ISAs that no arch has."""
    for name, program in programs.declared.items():
        for isa in program.isas:
            if isa not in isas:
                problem = f"program '{name}': no arch has the ISA '{isa}'"
                error = UnavailableError(problem, hint=nearest(isa, isas))
                yield LeftOut(error, program=name)


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
