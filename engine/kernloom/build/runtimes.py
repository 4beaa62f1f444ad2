"""All runtimes that this machine's toolchains can build: the targets of plain `scons`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.base.places import Places
from kernloom.build.arches import host_isa, is_native, with_vector_bytes
from kernloom.build.machines import NO_RUNTIME, AcceleratorVariant, machine_arch, variants_of
from kernloom.build.program import Program
from kernloom.build.programs import BuiltFor, Programs, is_for
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
    left_out = _LeftOut()
    with left_out.noting():
        beside = host_programs(programs, places, lambda toolchain: detect(toolchain, places.cache))
        built += [Runtime(name, a.arch, a.identity.toolchain, a) for name, a in beside.items()]
    groups = groups_of(places)
    accelerators: list[AcceleratorVariant] = []
    for name in groups.options("target"):
        with left_out.noting(f"target/{name}", KernloomError):
            accelerators += variants_of(groups, name)
    of_accelerators = {variant.target.variant for variant in accelerators}
    arches = [arch for arch in _shipped(places, "arch", Arch) if arch.topology is None]
    for toolchain in _shipped(places, "toolchain", Toolchain):
        variants = [name for name in toolchain.variants if name not in of_accelerators]
        if not variants:
            continue
        with left_out.noting():
            detected = detect(toolchain, places.cache)
            for arch, program in product(arches, programs.declared.values()):
                fits = program.runs_on == "target" and is_for(program, arch, detected.triple)
                if not fits or toolchain.family not in arch.flags:
                    continue
                with left_out.noting():
                    built += [
                        Runtime(program.name, arch.name, toolchain.name, artifact)
                        for flavour in variants
                        for artifact in programs.ends(
                            program.name, BuiltFor(toolchain, arch, flavour, detected)
                        )
                    ]
    runtimes = [name for name in groups.options("runtime") if name != NO_RUNTIME]
    for variant in accelerators:
        with left_out.noting(variant.place, KernloomError):
            built += _of_variant(variant, runtimes, places, left_out)
    return Runtimes(programs.declared, tuple(built), left_out.errors())


def _of_variant(
    variant: AcceleratorVariant, runtimes: Sequence[str], places: Places, left_out: _LeftOut
) -> list[Runtime]:
    """The programs of one variant of an accelerator, for each runtime."""
    found = variant.find(places)
    programs = Programs(found.roots)
    arch = machine_arch(variant.target, variant.arch)
    others = {find_platform(name).program for name in PLATFORMS.names()} - {found.platform.program}
    built: list[Runtime] = []
    for program, runtime in product(programs.declared.values(), runtimes):
        fits = program.runs_on == "target" and program.name not in others
        if not fits or not is_for(program, arch, found.detected.triple, accelerator=True):
            continue
        with left_out.noting(f"{variant.place}/{runtime}", KernloomError):
            built_for = BuiltFor(
                found.toolchain, arch, variant.target.variant, found.detected, runtime
            )
            built += [
                Runtime(program.name, arch.name, found.toolchain.name, artifact)
                for artifact in programs.ends(program.name, built_for)
            ]
    return built


class _LeftOut:
    """Why something cannot be built here, each reason once, with the places it applies to."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], dict[str, None]] = {}

    @contextmanager
    def noting(
        self, place: str = "", kind: type[KernloomError] = UnavailableError
    ) -> Iterator[None]:
        """Note an error of this kind, for one place of the build matrix."""
        try:
            yield
        except kind as error:
            self._reasons.setdefault((error.message, error.hint), {})[place] = None

    def errors(self) -> tuple[UnavailableError, ...]:
        return tuple(
            UnavailableError(f"{_places(named)}{message}", hint=hint)
            for (message, hint), named in self._reasons.items()
        )


def _places(named: Iterable[str]) -> str:
    found = ", ".join(filter(None, named))
    return f"{found}: " if found else ""


def host_programs(
    programs: Programs, places: Places, find: Callable[[Toolchain], Detected]
) -> dict[str, Artifact]:
    """Name -> program that runs beside an emulator. Built by this machine's own compiler, since
    emulators run here."""
    problem: UnavailableError | None = None
    groups = groups_of(places)
    isa = host_isa()
    here = Arch(isa, isa, flags={}, vector_bytes=4, registers=4, caches=Caches(0, 0, 0))
    wanted = [
        program.name
        for program in programs.declared.values()
        if program.runs_on == "host" and isa in (program.isas or (isa,))
    ]
    for name in HOST_TOOLCHAINS:
        toolchain = convert(Toolchain, groups.read("toolchain", name), f"toolchain/{name}")
        try:
            built_for = BuiltFor(toolchain, here, "release", find(toolchain))
            return {program: programs.artifact(program, built_for) for program in wanted}
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
