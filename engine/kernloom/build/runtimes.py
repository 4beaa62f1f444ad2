"""Every runtime that this machine's toolchains can build: what plain `scons` makes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kernloom.build.arches import NATIVE
from kernloom.build.artifact import Artifact
from kernloom.build.compile import runner_artifact
from kernloom.build.toolchains import detect
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.schema import Arch, Toolchain
from kernloom.errors import UnavailableError
from kernloom.places import Places

if TYPE_CHECKING:
    from kernloom.build.builder import Builder

T = TypeVar("T")


@dataclass(frozen=True)
class Runtimes:
    """The runtimes to build, and which toolchains are not there to build more."""

    artifacts: tuple[Artifact, ...]
    unavailable: dict[str, UnavailableError]
    """Toolchain -> why it cannot be used."""


def all_runtimes(places: Places) -> Runtimes:
    """The runner of every arch and variant that a toolchain on this machine can build."""
    artifacts: list[Artifact] = []
    unavailable: dict[str, UnavailableError] = {}
    arches = [arch for arch in _shipped(places, "arch", Arch) if arch.name != NATIVE]
    for toolchain in _shipped(places, "toolchain", Toolchain):
        try:
            detected = detect(toolchain, places.cache)
        except UnavailableError as error:
            unavailable[toolchain.name] = error
            continue
        artifacts += [
            runner_artifact(toolchain, arch, variant, detected, places.share)
            for arch in arches
            if toolchain.family in arch.flags and detected.triple.split("-")[0] == arch.isa
            for variant in toolchain.variants
        ]
    return Runtimes(tuple(artifacts), unavailable)


@contextlib.contextmanager
def planned_runtimes(builder: Builder) -> Iterator[Path]:
    """A plan file of all runtimes that are missing; their stable paths are made at the end."""
    artifacts = all_runtimes(builder.places).artifacts
    with builder.planned(builder.needed(artifacts)) as plan:
        yield plan
    builder.link(artifact for artifact in artifacts if builder.state(artifact).cached)


def _shipped(places: Places, group: str, cls: type[T]) -> list[T]:
    """The options of a config group, read as they stand; the user's shadow ours."""
    groups = Groups(places.folders("configs"))
    read = {name: groups.read(group, name) for name in groups.options(group) if name != NATIVE}
    return [convert(cls, data, group) for data in read.values() if "defaults" not in data]
