"""A trial: one experiment carried out, with everything needed to trust and repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCENE = "scene"
"""Key of the point of a trial that is a case of a scene: the scene's name."""


@dataclass(frozen=True)
class Watch:
    """Observations of a process beside its times, to find work that they do not show."""

    others_ns: tuple[int, ...] = ()
    """CPU time of threads that are not the kernel's own, during each sample."""
    voluntary: tuple[int, ...] = ()
    """Voluntary context switches during each sample: the kernel waited."""
    varied: tuple[bool | None, ...] = ()
    """Whether inputs changed between the runs of each sample; None where one was proven."""
    stride: int = 1
    """Runs from one change to the next, in samples whose inputs change."""
    queued_ns: int = 0
    """Time that the thread waited for a core during all samples."""
    elapsed_ns: int = 0
    """Time of the launch by the engine's own clock; 0 if the delays are not known,"""
    delays_ns: int = 0
    """and the part of it that nobody is to blame for: waiting for a core, copying tensors."""
    left: str = ""
    """What a kernel left running: threads, timers, processes."""


@dataclass(frozen=True)
class Samples:
    """The samples of one process: one entry per sample, each the mean of `inner` runs."""

    inner: int
    wall_ns: tuple[float, ...]
    cpu_ns: tuple[float, ...]
    involuntary: tuple[int, ...]
    """Involuntary context switches during each sample."""
    transfer_ns: tuple[float, ...] = ()
    """The part of `wall_ns` spent on transfers, for devices that have them."""
    readings: Mapping[str, tuple[float, ...]] = field(default_factory=dict, kw_only=True)
    """Name of each sampled gauge of the device, except time -> its readings; not stored."""
    watch: Watch | None = field(default=None, kw_only=True)
    """Not stored."""


@dataclass(frozen=True)
class Trial:
    """One experiment carried out: its status, numbers and provenance."""

    id: str
    workload: str
    case: str
    target: str
    status: str
    verified: bool
    point: Mapping[str, Any] = field(default_factory=dict)
    """The swept keys only; empty for a single run."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Transform -> step -> tunable -> value."""
    provider: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    placement: Mapping[str, str] = field(default_factory=dict)
    """Tensor -> copied, in_place or device, for tensors with a declared placement."""
    artifacts: tuple[Mapping[str, Any], ...] = ()
    """{name, key, cached} of each artifact."""
    stage: str = ""
    """The stage that failed, if one did."""
    message: str = ""
    stderr: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    """The overrides that composed its config."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    samples: tuple[Samples, ...] = ()
    warnings: tuple[str, ...] = ()
    """Reasons not to trust its numbers."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Conditions of the measurement: clock, load, scheduling, cache."""
    created: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    reused: bool = False
    """A cache hit: taken from the store instead of run again."""
    same: bool = field(default=False, compare=False)
    """Whether an earlier point of the same run has the same trial."""
    reuses: int = 0
    """Number of its cache hits; filled in when a store is asked for it."""
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The facts that its id is the hash of; a store returns them only on request."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)
    """Kernel and family of sources -> path -> hash of each file it was rendered from."""
    source: str = field(default="", compare=False)
    """Version of its kernels' sources, filled in on request: `newest`, or how much older."""
    attempt: int = field(default=0, compare=False)
    """Number of the attempt among those with its id, from 1; 0 before it is stored."""

    @property
    def good(self) -> bool:
        return self.verified and self.status in ("ok", "unconverged")
