"""Commands of all sources below native/, for editors, also of programs that were never built.

They are found without examining compilers: each is only asked which machine it compiles for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.base.files import sha256_json, tree_stamps
from kernloom.base.places import Places
from kernloom.build.built_for import BuiltFor, driven, is_for
from kernloom.build.machines import NO_RUNTIME
from kernloom.build.program import DECLARATION, NATIVE, Program
from kernloom.build.programs import Programs
from kernloom.build.runtimes import HOST_TOOLCHAINS, host_arch, shipped
from kernloom.build.toolchains import DRIVER, Detected, glance
from kernloom.config.groups import groups_of
from kernloom.config.schema import Arch, Toolchain

Command = tuple[Path, str, list[str]]
"""Root, source and the words before it."""


def native_state(places: Places) -> str:
    """Changes whenever other commands may be found."""
    folders = places.folders("configs")
    return sha256_json(
        {
            "declarations": [
                stamp for root in places.roots for stamp in tree_stamps(root / NATIVE, DECLARATION)
            ],
            "sources": [
                str(path) for root in places.roots for path in sorted((root / NATIVE).rglob("*"))
            ],
            "configs": [
                stamp
                for folder in folders
                for group in ("arch", "toolchain", "runtime")
                for stamp in tree_stamps(folder / group)
            ],
            "path": os.get_exec_path(),
        }
    )


def native_commands(places: Places) -> Iterator[Command]:
    """The command of each source that a toolchain on this machine compiles, by preference."""
    try:
        programs = Programs(places.roots)
        arches = shipped(places, "arch", Arch)
        toolchains = sorted(
            shipped(places, "toolchain", Toolchain),
            key=lambda one: (one.name not in HOST_TOOLCHAINS[:1], one.name),
        )
    except KernloomError:
        # Whoever builds these programs is told.
        return
    for toolchain in toolchains:
        try:
            found = glance(toolchain, places.cache)
        except UnavailableError:
            continue
        found.known[DRIVER] = found.tools
        for arch, program in product([*arches, host_arch()], programs.declared.values()):
            here = arch.name == host_arch().name
            of_accelerator = program.family == "accelerator"
            wanted = here == (program.runs_on == "host" or of_accelerator)
            if wanted and is_for(program, arch, found.triple, accelerator=of_accelerator):
                for runtime in _runtimes(program, places):
                    yield from _commands(programs, program, toolchain, arch, found, runtime)


def _runtimes(program: Program, places: Places) -> list[str]:
    """The task runtimes that a program has sources for."""
    if "runtime" not in program.varies_by:
        return [NO_RUNTIME]
    return [name for name in groups_of(places).options("runtime") if name != NO_RUNTIME]


def _commands(
    programs: Programs,
    program: Program,
    toolchain: Toolchain,
    arch: Arch,
    found: Detected,
    runtime: str,
) -> Iterator[Command]:
    cxx = program.language == "c++"
    try:
        chosen, role = driven(program, toolchain, cxx=cxx)
        if role not in found.known:
            found.known[role] = glance(chosen, found.cache, role=role).tools
        detected = replace(found, tools=found.known[role])
        built_for = BuiltFor(chosen, arch, next(iter(chosen.variants)), detected, runtime)
        yield from programs.commands(program.name, built_for)
    except KernloomError:
        return
