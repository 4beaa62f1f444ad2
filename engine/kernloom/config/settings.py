"""Config sections that control how a run is executed and are not part of a trial's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernloom.base.digest import Digested
from kernloom.config.limits import at_least, between


@dataclass(frozen=True)
class StoreSettings(Digested):
    """The store of trials."""

    name: str
    path: str | None = None
    """A SQLite file; default: the project's."""
    url: str | None = None
    """A PostgreSQL server, instead of a file."""


@dataclass(frozen=True)
class FleetSettings(Digested):
    """Where trials are executed: the keys of every fleet. The settings of a kind add their own; an
    experiment keeps the section as plain data, and the registry of fleets finds the schema."""

    name: str
    kind: str


@dataclass(frozen=True)
class SampleSettings(Digested):
    """Number of points to sample from a sweep, and the method."""

    count: int = field(metadata=between(1, 1_000_000))
    method: Literal["random", "latin_hypercube"] = "random"
    """`latin_hypercube`: every value of an axis equally often."""
    seed: int = field(default=0, metadata=at_least(0))


@dataclass(frozen=True)
class SweepSettings(Digested):
    """The sweep besides the axes of the command line; `config.sweeps` reads it."""

    axes: Mapping[str, Any] = field(default_factory=dict)
    """Key -> values; every combination is a point."""
    zip: tuple[Mapping[str, Any], ...] = ()
    """Keys that are swept together; each map is one axis."""
    nested: tuple[SweepSettings, ...] = ()
    """Sweeps whose points, one sweep after the other, form one axis."""
    where: tuple[str, ...] = ()
    """Constraints on every point."""
    exclude: tuple[Mapping[str, Any], ...] = ()
    """Points to leave out: those with all of a map's values."""
    sample: SampleSettings | None = None
    points: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name -> an additional point."""
    about: str = ""


@dataclass(frozen=True)
class BuildSettings(Digested):
    """How artifacts are built."""

    keep: bool = False
    """Keep intermediates (preprocessed source, assembly, object) beside each artifact."""
    jobs: int = field(default=0, metadata=at_least(0))
    """Parallel jobs; 0: one per core."""
    cache: str = ""
    """Folder in which several checkouts share what they have built; empty: none."""
    mode: Literal["auto", "never"] = "auto"
    """`never`: what is missing is an error, for machines that must not build."""
    limit: float | None = field(default=None, metadata=at_least(1.5))
    """Stop the compiler of a kernel that takes this many times longer than that of any kernel
    before it; null: never."""


@dataclass(frozen=True)
class ScreenSettings(Digested):
    """Screening: quick measurements that select the points to measure in full."""

    keep: int = field(default=0, metadata=at_least(0))
    """Number of points measured in full, the fastest of those that do the same work; 0: all,
    without screening."""
    batch: int = field(default=25, metadata=between(1, 1000))
    """Maximum number of kernels that are compiled together."""


@dataclass(frozen=True)
class SearchSettings(Digested):
    """A study: how the parameters of a workload are searched, and how its winner is found."""

    name: str = "default"
    strategy: str | None = None
    """Name of a search strategy; null: the default one."""
    trials: int | None = field(default=100, metadata=at_least(1))
    """Maximum number of points to evaluate, those known before included; null: no limit."""
    seconds: float | None = field(default=None, metadata=at_least(0.001))
    """Maximum duration of the search; null: no limit."""
    patience: int | None = field(default=None, metadata=at_least(1))
    """Stop after so many points without an improvement; null: never."""
    batch: int = field(default=0, metadata=between(0, 10_000))
    """Points that are built and measured together; 0: four per core."""
    seed: int = field(default=0, metadata=at_least(0))
    """Of the strategy's random choices."""
    objective: str | tuple[str, ...] | None = None
    """A gauge, a metric or a formula of metrics, to be minimised (metrics where more is better are
    maximised); several: the Pareto front; null: the gauge that trials are ranked by."""
    steps: tuple[str, ...] = ()
    """Steps whose tunables are searched; empty: all."""
    memory: bool = True
    """Start from what is known of this and of similar shapes, arches and toolchains."""
    screening: str = "quick"
    """Measuring policy of the search."""
    racing: str = "standard"
    """Measuring policy of the race among the leaders."""
    leaders: int = field(default=5, metadata=between(1, 100))
    """Number of points that take part in the race; 1: no race."""
    stages: int = field(default=3, metadata=between(1, 10))
    """Stages of the race, each with twice the rounds of the one before."""
    limit: float | None = field(default=10.0, metadata=at_least(1.5))
    """Stop a launch that takes this many times longer than the whole trial of the best point;
    null: never."""
    build_limit: float | None = field(default=20.0, metadata=at_least(1.5))
    """Stop a compiler that takes this many times longer than for any kernel before; null: never."""
    about: str = ""
