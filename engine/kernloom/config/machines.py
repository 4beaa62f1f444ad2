"""The machine of a variant: its toolchain and emulator in place of the target's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernloom.base.digest import Section, as_section
from kernloom.config.platforms import PLATFORMS, find_platform

SHIPPED_PLATFORM = "sim"
ReadToolchain = Callable[[str, Path | None], Mapping[str, Any]]
"""Name of a toolchain, and a further folder of configs/ -> its config."""


def machine_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section of the variant's machine in a composed config; empty if it has none."""
    target = data.get("target")
    if not isinstance(target, Mapping):
        return {}
    machines = target.get("machines")
    variant = target.get("variant")
    if not isinstance(machines, Mapping) or not isinstance(variant, str):
        return {}
    machine = machines.get(variant)
    return machine if isinstance(machine, Mapping) else {}


def with_machine(
    composed: Section[Any], machine: Mapping[str, Any], *, own_toolchain: bool, read: ReadToolchain
) -> Section[Any]:
    """The composed config with the machine's emulator, and with its toolchain unless the user has
    chosen one (`own_toolchain`): a chosen one is checked against the machine's isa later."""
    changed: dict[str, Any] = {}
    if isinstance(machine.get("emulator"), Mapping):
        target = composed["target"]
        changed["target"] = as_section({**target, "emulator": machine["emulator"]})
    name, folder = _toolchain(machine)
    if name and not own_toolchain:
        changed["toolchain"] = as_section(read(name, folder))
    return Section({**composed, **changed}) if changed else composed


def _toolchain(machine: Mapping[str, Any]) -> tuple[str, Path | None]:
    """The toolchain's name and the folder of the package that may bring it: that of the platform,
    whose vendor knows best, before that of the machine."""
    name = str(machine.get("toolchain") or "")
    platform = str(machine.get("platform") or SHIPPED_PLATFORM)
    # Packages are scanned only where one is needed; a missing one is reported by the plan.
    if platform == SHIPPED_PLATFORM or not PLATFORMS.knows(platform):
        return name, None
    found = find_platform(platform)
    return found.toolchain or name, found.folder
