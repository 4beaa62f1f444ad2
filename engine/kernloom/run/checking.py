"""Plans that verify, and measure only virtual time, which is exact."""

from __future__ import annotations

from kernloom.base.gauges import VIRTUAL_TIME, leading_gauge
from kernloom.config.overrides import Overrides
from kernloom.device.devices import DEVICES
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.planning import MEASURING, plan_points


def plan_checks(assembly: Assembly, overrides: Overrides, *, refresh: bool = True) -> list[Planned]:
    """Every point of the overrides, planned to be verified; see `plan_points`."""
    point = next(iter(assembly.composer.points(overrides)))
    device = DEVICES.get(str(point.data["target"]["device"]), key="target.device")
    virtual = leading_gauge(device.gauges) == VIRTUAL_TIME
    without = frozenset[str]() if virtual else MEASURING
    return plan_points(assembly, overrides, without=without, refresh=refresh)
