"""The fleet that an experiment asks for."""

from __future__ import annotations

from kernloom.base.errors import UsageError
from kernloom.config.settings import FleetSettings
from kernloom.run.assembly import Assembly
from kernloom.run.fleet import Fleet
from kernloom.run.progress import Progress
from kernloom.store.store import Store


def fleet_of(
    assembly: Assembly, settings: FleetSettings, store: Store, progress: Progress
) -> Fleet:
    """The fleet that an experiment asks for."""
    if settings.kind == "slurm":
        from kernloom.fleet.slurm.fleet import Slurm

        return Slurm(assembly, settings, store, progress)
    from kernloom.fleet.local import Local

    return Local(assembly, progress, settings)


def check_local(settings: FleetSettings, command: str) -> None:
    """Refuse a cluster for what is done here and now."""
    if settings.kind != "local":
        raise UsageError(
            f"'{command}' works on this machine only, not on fleet '{settings.name}'",
            hint="Say fleet=local, or leave it away; `kernloom run` takes other fleets.",
        )
