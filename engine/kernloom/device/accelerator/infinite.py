"""Resources of an accelerator that can be made infinite, so that nothing waits for them."""

from __future__ import annotations

from collections.abc import Mapping

from kernloom.config.schema import Arch, Runtime

HARDWARE = (
    *("compute", "dma", "hbm", "sram", "noc", "sip", "translation"),
    *("pcie", "io_cpu", "management", "scheduler", "submit"),
)
"""Names that the platform's setting `infinite` takes."""
RINGS = "rings"
"""Slots and dependency entries of the rings."""
RESOURCES = (*HARDWARE, RINGS)
_ROOM = str(1 << 40)


def settings_without(resource: str) -> Mapping[str, str]:
    """Settings with which a resource takes no time, on top of those of the device."""
    if resource == RINGS:
        return {"ring.slots": _ROOM, "ring.dependencies": _ROOM}
    return {"infinite": resource}


def resources_of(arch: Arch, runtime: Runtime) -> tuple[str, ...]:
    """The resources that a device has."""
    lacking = set()
    if arch.topology is None or arch.topology.sips == 1:
        lacking.add("sip")
    if runtime.ring is None:
        lacking.add(RINGS)
    return tuple(name for name in RESOURCES if name not in lacking)
