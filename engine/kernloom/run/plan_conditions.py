"""Conditions of a trial that follow from its plan: provenance of the arch data, injected faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernloom.config.accelerator import OVERRIDDEN, PROVENANCE
from kernloom.config.schema import Target
from kernloom.device.devices import DEVICES
from kernloom.measure.ranking import FAULTS
from kernloom.plan.planned import Planned
from kernloom.run.provenance import provenance_conditions

PARAMETERS = "parameters"
"""Condition of a trial: step -> where its parameters come from, for providers that say it."""
_NAMES = (PROVENANCE, OVERRIDDEN, FAULTS, PARAMETERS)


def injected_faults(target: Target) -> str:
    """The faults that a target injects, as text; empty if there are none."""
    return DEVICES.get(target.device, key="target.device").injected_faults(target)


def plan_conditions(plan: Planned) -> dict[str, Any]:
    conditions = provenance_conditions(plan)
    if faults := injected_faults(plan.experiment.target):
        conditions[FAULTS] = faults
    if origins := origins_of(plan):
        conditions[PARAMETERS] = origins
    return conditions


def with_plan_conditions(conditions: Mapping[str, Any], plan: Planned) -> dict[str, Any]:
    """Conditions of a stored trial, with those that a plan states now: they can change without
    another result."""
    measured = {name: value for name, value in conditions.items() if name not in _NAMES}
    return measured | plan_conditions(plan)


def origins_of(plan: Planned) -> dict[str, str]:
    """Step -> where its parameters come from, for providers that say it."""
    if plan.refusal:
        return {}
    found = plan.graph.of_type("origins", plan.outputs)
    return {step: text for part in found for step, text in part.items()}


def origin_lines(conditions: Mapping[str, Any]) -> list[str]:
    """The same for people, from the conditions of a trial."""
    origins = conditions.get(PARAMETERS, {})
    return [f"parameters of {step}: {text}" for step, text in origins.items()]
