"""Short names of config keys: `extra_flags` for `toolchain.extra_flags`, where unambiguous.

They are resolved against the schema, so that a short name means the same key for every trial,
whether it was swept or not.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from kernloom.base.lookup import MISSING, lookup
from kernloom.config.schema import Experiment

Path = tuple[str, ...]
NAMED: tuple[Path, ...] = (
    ("workload", "sizes"),
    ("workload", "scalars"),
    ("target", "options"),
    ("arch", "memory"),
    ("toolchain", "tools"),
)
"""Sections whose keys are not in the schema and also have short names."""


def config_paths(text: str) -> tuple[Path, ...]:
    """The config keys that a short name may refer to."""
    parts = tuple(text.split("."))
    found = [path for path in _schema_paths() if _ends(path, parts)]
    found += [path for section in NAMED if _ends(path := (*section, parts[-1]), parts)]
    return tuple(found)


def short_config_names(config: Any) -> Iterator[str]:
    """All short names of a config's keys."""
    inside = ((*section, name) for section in NAMED for name in _names(config, section))
    there = (path for path in _schema_paths() if lookup(config, path) is not MISSING)
    for path in (*inside, *there):
        for start in range(1, len(path)):
            yield ".".join(path[start:])


def _names(config: Any, section: Sequence[str]) -> list[str]:
    found = lookup(config, section)
    return [str(name) for name in found] if isinstance(found, Mapping) else []


def _ends(path: Path, parts: Path) -> bool:
    return len(parts) < len(path) and path[-len(parts) :] == parts


@cache
def _schema_paths() -> tuple[Path, ...]:
    """All keys of the schema, except those at its root."""
    return tuple(path for path in _paths(Experiment) if len(path) > 1)


def _paths(cls: type) -> Iterator[Path]:
    for name, wanted in get_type_hints(cls).items():
        options = [wanted]
        if get_origin(wanted) in (Union, types.UnionType):
            options = [option for option in get_args(wanted) if option is not type(None)]
        sections = [option for option in options if is_dataclass(option)]
        if sections and isinstance(sections[0], type):
            yield from ((name, *path) for path in _paths(sections[0]))
        elif not any(get_origin(option) is Mapping for option in options):
            yield (name,)
