"""The kinds of fleet by name, and the fleet that an experiment asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernloom.base.errors import ConfigError, UsageError
from kernloom.base.registry import Registry
from kernloom.config.convert import convert
from kernloom.config.settings import FleetSettings
from kernloom.run.fleet import Fleet, FleetSetup

DEFAULT = "local"
# Named and not imported, like those of other packages: a fleet depends on the engine.
FLEETS: Registry[type[Fleet]] = Registry(
    "fleet",
    {},
    later={
        "local": "kernloom.fleet.local:Local",
        "slurm": "kernloom.fleet.slurm.fleet:Slurm",
    },
    group="kernloom.fleets",
)

FleetSection = Mapping[str, Any]
"""The section `fleet` of a config."""


def fleet_kind(section: FleetSection) -> type[Fleet]:
    """The class of the fleet that a section selects."""
    kind = section.get("kind", DEFAULT)
    if not isinstance(kind, str):
        raise ConfigError(f"expected text, not {kind!r}", key="fleet.kind")
    return FLEETS.get(kind, key="fleet.kind")


def fleet_settings(section: FleetSection) -> FleetSettings:
    """The section as the settings of its kind; other kinds' keys are unknown to it."""
    return convert(fleet_kind(section).Settings, section, "fleet")


def create_fleet(section: FleetSection, setup: FleetSetup) -> Fleet:
    """The fleet that an experiment selects."""
    return fleet_kind(section).create(fleet_settings(section), setup)


def check_on_this_machine(section: FleetSection, command: str) -> None:
    """Refuse a remote fleet for commands that work here and now."""
    if not fleet_kind(section).on_this_machine:
        raise UsageError(
            f"'{command}' works on this machine only, not on fleet '{section['name']}'",
            hint="Say fleet=local, or leave it away; `kernloom run` takes other fleets.",
        )
