"""What an accelerator is, as lines `key=value` for its platform and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from kernloom.base.expressions import parse_size
from kernloom.config.schema import Arch, Target
from kernloom.device.accelerator.options import settings_of_options

SECTIONS = (
    "topology",
    "clock",
    "hbm",
    "sram",
    "mmu",
    "dma",
    "links",
    "compute",
    "control",
)
"""Sections of an arch that describe an accelerator."""
SIZES = ("hbm.bytes", "hbm.interleave", "sram.bytes", "mmu.page", "ring.heap")
"""Keys whose values may be sizes as text; programs read plain byte counts."""


def settings_of(arch: Arch | Mapping[str, Any], target: Target | None = None) -> dict[str, str]:
    """Key -> value of an accelerator's arch, and of the options of its target."""
    found: dict[str, str] = {}
    for section in SECTIONS:
        given = arch.get(section) if isinstance(arch, Mapping) else getattr(arch, section, None)
        if given is not None:
            found |= flattened(section, given)
    return found | (settings_of_options(target) if target else {})


def flattened(name: str, node: Any) -> dict[str, str]:
    """Dotted key -> value of all leaves below a dataclass or mapping."""
    return {key: _text(key, value) for key, value in _leaves(name, node)}


def lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _leaves(name: str, node: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(node) and not isinstance(node, type):
        children = {item.name: getattr(node, item.name) for item in fields(node)}
    elif isinstance(node, Mapping):
        children = dict(node)
    else:
        yield name, node
        return
    for key, child in children.items():
        if child is not None:
            yield from _leaves(f"{name}.{key}", child)


def _text(key: str, value: Any) -> str:
    if key in SIZES:
        return str(parse_size(value, key=f"arch.{key}"))
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    return str(value)
