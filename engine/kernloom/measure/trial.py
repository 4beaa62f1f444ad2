"""A trial: one experiment carried out, with everything needed to trust and repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Samples:
    """What one process measured: one entry per sample, each the mean of `inner` runs."""

    inner: int
    wall_ns: tuple[float, ...]
    cpu_ns: tuple[float, ...]
    involuntary: tuple[int, ...]
    """Involuntary context switches during each sample."""
    transfer_ns: tuple[float, ...] = ()
    """The part of `wall_ns` that transfers took, where a device has them."""
    readings: Mapping[str, tuple[float, ...]] = field(default_factory=dict, kw_only=True)
    """Name of each sampled gauge of the device but time -> what it shows; not kept by stores."""


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
    """Tensor -> copied, in_place or device, for those that say where they are."""
    artifacts: tuple[Mapping[str, Any], ...] = ()
    """{name, key, cached} of each artifact."""
    stage: str = ""
    """Where it ended, if it did not end well."""
    message: str = ""
    stderr: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    """The words that composed its config."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    samples: tuple[Samples, ...] = ()
    warnings: tuple[str, ...] = ()
    """Why not to trust its numbers."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Under what it was measured: clock, load, scheduling, cache."""
    created: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    reused: bool = False
    """Taken from the store instead of being carried out again."""
    same: bool = field(default=False, compare=False)
    """Stands at an earlier point of the same run, too."""
    reuses: int = 0
    """How often that has happened to it; known to whoever asks the store for it."""
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What its id is the hash of; a store hands it out only when asked for it."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)
    """Kernel and family of sources -> path -> hash of each file that it was rendered from."""
    source: str = field(default="", compare=False)
    """Which version of its kernels' sources it ran, for those who have asked: `newest`, or how
    much older."""
    attempt: int = field(default=0, compare=False)
    """Which of the attempts with its id it is, from 1; 0 before it is stored."""

    @property
    def good(self) -> bool:
        return self.verified and self.status in ("ok", "unconverged")
