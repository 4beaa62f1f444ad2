"""The sections of a config that say how a run is carried out, and do not change what a trial is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernloom.base.digest import Digested
from kernloom.config.limits import at_least, between


@dataclass(frozen=True)
class StoreSettings(Digested):
    """Where trials are kept."""

    name: str
    path: str | None = None
    """A SQLite file; by default that of the project."""
    url: str | None = None
    """A PostgreSQL server, in place of a file."""


@dataclass(frozen=True)
class FleetSettings(Digested):
    """Where trials are carried out: the keys of every fleet. The settings of a kind add its own;
    an experiment keeps the section as it is, and the registry of fleets finds the schema."""

    name: str
    kind: str


@dataclass(frozen=True)
class SampleSettings(Digested):
    """How many points of a sweep to take, and which."""

    count: int = field(metadata=between(1, 1_000_000))
    method: Literal["random", "latin_hypercube"] = "random"
    """`latin_hypercube`: the values of every axis equally often."""
    seed: int = field(default=0, metadata=at_least(0))


@dataclass(frozen=True)
class SweepSettings(Digested):
    """What is swept beside the axes of the command line; `config.sweeps` reads it."""

    axes: Mapping[str, Any] = field(default_factory=dict)
    """Key -> its values; every combination is a point."""
    zip: tuple[Mapping[str, Any], ...] = ()
    """Keys that move together, each map one axis."""
    nested: tuple[SweepSettings, ...] = ()
    """Sweeps whose points, one after the other, are one axis."""
    where: tuple[str, ...] = ()
    """What must hold at every point."""
    exclude: tuple[Mapping[str, Any], ...] = ()
    """Points to leave out: those that have all of a map's values."""
    sample: SampleSettings | None = None
    points: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name -> a point to add."""
    about: str = ""


@dataclass(frozen=True)
class BuildSettings(Digested):
    """How artifacts are built."""

    keep: bool = False
    """Keep intermediates (preprocessed source, assembly, object) beside each artifact."""
    jobs: int = field(default=0, metadata=at_least(0))
    """Parallel jobs; 0: one per core."""


@dataclass(frozen=True)
class ScreenSettings(Digested):
    """How a sweep is screened before anything is measured for keeps."""

    keep: int = field(default=0, metadata=at_least(0))
    """How many points are measured in full, the fastest of those that do the same; 0: all, and
    nothing is screened."""
    batch: int = field(default=25, metadata=between(1, 1000))
    """How many kernels are compiled together at most."""
