"""Provenance of the arch data that the numbers of a trial rest on."""

from __future__ import annotations

from typing import Any

from kernloom.config.accelerator import OVERRIDDEN, PROVENANCE, provenance_counts, provenances
from kernloom.config.overrides import Overrides
from kernloom.config.schema import Arch
from kernloom.plan.planned import Planned


def overridden_keys(overrides: Overrides) -> frozenset[str]:
    """Keys below `arch` that a command line or a sweep sets."""
    return frozenset(
        override.key.removeprefix("arch.")
        for override in overrides
        if not override.group and override.key.startswith("arch.")
    )


def provenance_at(arch: Arch, overridden: frozenset[str]) -> dict[str, str]:
    """Key -> provenance of every value of an accelerator at a point."""
    return provenances(arch, overridden)


def provenance_conditions(plan: Planned) -> dict[str, Any]:
    """The provenance of the arch data behind a trial; empty for targets without such data."""
    arch = plan.experiment.arch
    if arch.topology is None:
        return {}
    overridden = overridden_keys(plan.point.overrides)
    found = provenance_at(arch, overridden)
    conditions: dict[str, Any] = {PROVENANCE: provenance_counts(found)}
    if overridden:
        conditions[OVERRIDDEN] = sorted(f"arch.{key}" for key in overridden)
    return conditions
