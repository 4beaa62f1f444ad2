"""The settings of a Slurm fleet."""

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
    """`node`: a whole node per task; `measuring`: never two measurements on a machine at once."""
    chunk: int = field(default=50, metadata=at_least(1))
    """Points per task."""
    max_tasks: int = field(default=64, metadata=at_least(1))
    """Limit of concurrent tasks."""
    time: int = field(default=60, metadata=at_least(1))
    """Time limit of a task in minutes."""
    retries: int = field(default=2, metadata=between(0, 100))
    """Number of retries for the points of a lost task."""
    build: Literal["login", "first"] = "login"
    """Who builds: this machine before it submits, or the first task that needs an artifact."""
    partition: str | None = None
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """Further options of sbatch, by their long names."""
    poll: float = field(default=10.0, metadata=between(0.05, 3600))
    """Longest interval between two queries of the queue, in seconds."""
    folder: str | None = None
    """Folder of submissions; every node must have it under this path."""

    @property
    def on_node(self) -> LocalSettings:
        """The settings with which a task measures on its node."""
        return LocalSettings(self.name, exclusive=self.exclusive)
