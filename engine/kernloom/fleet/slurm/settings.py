"""The settings of a fleet that Slurm runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kernloom.config.limits import at_least, between
from kernloom.config.settings import FleetSettings
from kernloom.fleet.local import LocalSettings


@dataclass(frozen=True)
class SlurmSettings(FleetSettings):
    """Trials on the nodes of a cluster, in tasks of job arrays."""

    kind: str = "slurm"
    exclusive: Literal["node", "measuring", "none"] = "none"
    """`node`: a whole node for each task; `measuring`: never two measure on a machine at once."""
    chunk: int = field(default=50, metadata=at_least(1))
    """Points for each task."""
    max_tasks: int = field(default=64, metadata=at_least(1))
    """Tasks that run at once."""
    time: int = field(default=60, metadata=at_least(1))
    """Minutes that a task may take."""
    retries: int = field(default=2, metadata=between(0, 100))
    """How often the points of a lost task are submitted again."""
    build: Literal["login", "first"] = "login"
    """Who builds: this machine before it submits, or the first task that needs an artifact."""
    partition: str | None = None
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Further options of sbatch, by their long names."""
    poll: float = field(default=10.0, metadata=between(0.05, 3600))
    """Seconds between two questions to the queue, at most."""
    folder: str | None = None
    """Where submissions are kept; every node must see it under this name."""

    @property
    def on_node(self) -> LocalSettings:
        """How a task measures on its node."""
        return LocalSettings(self.name, exclusive=self.exclusive)
