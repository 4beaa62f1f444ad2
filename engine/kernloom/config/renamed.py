"""Keys that had another name in earlier versions of Kernloom.

Stored trials and recipes keep the names they were written with, and are translated when they are
read. Everywhere else an earlier name is unknown, and the error names the current one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kernloom.base.errors import nearest

RENAMED = {"baselines": "peers"}
"""Earlier -> current name of a key of `measure`; metrics and facts have the same names."""
_AT_ROOT = RENAMED | {f"measure.{old}": f"measure.{new}" for old, new in RENAMED.items()}


def with_current_keys(document: Any) -> Any:
    """A config, point, metrics or facts, read from a store or recipe, with the current names."""
    if not isinstance(document, Mapping):
        return document
    document = _renamed(document, _AT_ROOT)
    measure = document.get("measure")
    if not isinstance(measure, Mapping) or RENAMED.keys().isdisjoint(measure):
        return document
    return {**document, "measure": _renamed(measure, RENAMED)}


def nearest_key(name: str, known: Collection[str]) -> str:
    """A hint at the key that was probably meant, or that has replaced this one."""
    current = RENAMED.get(name, name)
    return nearest(current if current in known else name, known)


def _renamed(mapping: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    if names.keys().isdisjoint(mapping):
        return mapping
    return {names.get(key, key): value for key, value in mapping.items()}
