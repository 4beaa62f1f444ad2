"""All targets as their files describe them, and whether this machine can run them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.base.places import Places
from kernloom.build.arches import NATIVE, check_runs, is_native, with_vector_bytes
from kernloom.build.emulators import find_emulator
from kernloom.build.machines import AcceleratorVariant, variants_of
from kernloom.build.toolchains import detect
from kernloom.config.accelerator import summary
from kernloom.config.convert import convert
from kernloom.config.groups import Groups, groups_of
from kernloom.config.schema import Arch, Target, Toolchain
from kernloom.device.devices import DEVICES


def list_targets(places: Places) -> list[dict[str, Any]]:
    """The targets as their files describe them; Hydra is not needed for that."""
    groups = groups_of(places)
    return [_listed(groups, name, places) for name in groups.options("target")]


def _listed(groups: Groups, name: str, places: Places) -> dict[str, Any]:
    """One target; an invalid file is listed as such and does not hide the others."""
    try:
        return _target(groups, name, places)
    except KernloomError as error:
        return {
            "name": name,
            "family": "",
            "arch": "",
            "variants": [],
            "available": False,
            "reason": f"its config is wrong: {error.message}",
            "hint": error.hint,
            "about": "",
        }


def _target(groups: Groups, name: str, places: Places) -> dict[str, Any]:
    data = groups.read("target", name)
    chosen = groups.defaults(data)
    target = convert(Target, data.get("target", {}), f"target/{name}")
    reason = hint = ""
    variants = variants_of(groups, name)
    try:
        _check(groups, target, chosen, places)
    except UnavailableError as error:
        reason, hint = error.message, error.hint
    except KernloomError as error:
        reason, hint = f"its config is wrong: {error.message}", error.hint
    return {
        "name": target.name,
        "family": target.family,
        "arch": chosen.get("arch", ""),
        "variants": list(target.variants),
        "available": not reason,
        "reason": reason,
        "hint": hint,
        "about": target.about,
        **_accelerator(variants, places),
    }


def _accelerator(variants: Sequence[AcceleratorVariant], places: Places) -> dict[str, Any]:
    """The topology of an accelerator, and the variants that this machine cannot run."""
    if not variants or variants[0].arch.topology is None:
        return {}
    return {
        "topology": summary(variants[0].arch),
        "unavailable_variants": unavailable_variants(variants, places),
    }


def unavailable_variants(
    variants: Sequence[AcceleratorVariant], places: Places
) -> dict[str, dict[str, str]]:
    """Variant -> why this machine cannot run it, and what to install."""
    found = {}
    for variant in variants:
        try:
            variant.find(places)
        except KernloomError as error:
            found[variant.target.variant] = {"reason": error.message, "hint": error.hint}
    return found


def _check(groups: Groups, target: Target, chosen: dict[str, str], places: Places) -> None:
    if sys.platform not in target.systems:
        raise UnavailableError(f"runs on {', '.join(target.systems)}, not {sys.platform}")
    if "toolchain" in chosen:
        toolchain = convert(Toolchain, groups.read("toolchain", chosen["toolchain"]), "toolchain")
        detect(toolchain, places.cache)
    if target.emulator:
        find_emulator(target.emulator, places.cache)
    for variant in variants_of(groups, target.name):
        if variant.target.variant == target.variant:
            variant.find(places)
    arch = groups.read("arch", chosen["arch"]) if "arch" in chosen else {"name": NATIVE}
    device = DEVICES.get(target.device, key="target.device")
    if device.runs_cpu_code(target) and not is_native(arch):
        check_runs(target, convert(Arch, with_vector_bytes(arch), "arch"))
    device.check(target, cache=places.cache)
