"""Provenance of the arch data that the numbers of a trial rest on."""

from __future__ import annotations

from typing import Any

from kernloom.config.accelerator import (
    OVERRIDDEN,
    OVERRIDE,
    PROVENANCE,
    SECTIONS,
    provenance_counts,
    provenances,
)
from kernloom.config.overrides import Overrides
from kernloom.config.schema import Arch
from kernloom.plan.planned import Planned


def overridden_keys(arch: Arch, overrides: Overrides) -> frozenset[str]:
    """Keys below `arch` that a command line, a sweep or the run behind a recipe sets; without those
    that hold no value of the device, such as `about`."""
    recorded = {key for key, source in arch.provenance.items() if source == OVERRIDE}
    given = {
        override.key.removeprefix("arch.")
        for override in overrides
        if not override.group and override.key.startswith("arch.")
    }
    return frozenset(key for key in recorded | given if key.partition(".")[0] in SECTIONS)


def provenance_conditions(plan: Planned) -> dict[str, Any]:
    """The provenance of the arch data behind a trial; empty for targets without such data."""
    arch = plan.experiment.arch
    if arch.topology is None:
        return {}
    overridden = overridden_keys(arch, plan.point.overrides)
    found = provenances(arch, overridden)
    conditions: dict[str, Any] = {PROVENANCE: provenance_counts(found)}
    if overridden:
        conditions[OVERRIDDEN] = sorted(f"arch.{key}" for key in overridden)
    return conditions
