"""The name of a config is the name of its file.

Trials are stored, grouped and compared by these names, so two files must not share one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernloom.base.errors import ConfigError

NAMED = ("workload", "kernel", "target", "arch", "toolchain", "runtime", "pipeline", "measure")
"""Groups whose options have a `name`. In a store or fleet, the name says the kind."""
EXPERIMENT = "experiment"
"""The group of presets: files that choose options of other groups and set values."""
AT_ROOT = {
    "target": "Without it the toolchain, arch and pipeline that it chooses go below `target`.",
    EXPERIMENT: "Without it the keys that it sets go below `experiment`.",
}
"""Groups whose files set keys at the root of the config -> what goes wrong otherwise."""
_GLOBAL = re.compile(r"\s*(?:#\s*@[^\n]*\n\s*)*?#\s*@package\s+_global_\s")
"""A header that puts the keys of a file at the root of the config."""


def at_root(group: str, text: str) -> bool:
    """Whether a file's keys belong to the root and not to its group's section."""
    return not group or _GLOBAL.match(text) is not None


def check_file(group: str, option: str, data: Mapping[str, Any], text: str, where: str) -> None:
    """Refuse a file whose `name` is not its file name, and one without a header that it needs."""
    if group in AT_ROOT and not at_root(group, text):
        raise ConfigError(
            f"the first line of {_a(group)}'s file must be `# @package _global_`",
            key=where,
            hint=AT_ROOT[group],
        )
    if group not in NAMED:
        return
    section = data.get(group) if at_root(group, text) else data
    if not isinstance(section, Mapping) or "name" not in section:
        return
    if section["name"] != option:
        raise ConfigError(
            f"says name: {section['name']}, but the file is {option}.yaml",
            key=where,
            hint=f"Say name: {option}, or leave that line out: the name follows from the file.",
        )


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def with_name(group: str, option: str, section: Any) -> Any:
    """A section with its file's name; inherited names are replaced."""
    if group not in NAMED or not isinstance(section, Mapping):
        return section
    return {**section, "name": option}


def with_names(data: Mapping[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
    """A composed config with the names of its chosen options (`group` or `group@package`)."""
    result = dict(data)
    for key, option in chosen.items():
        group, _, package = key.partition("@")
        if group in NAMED:
            _rename(result, (package or group).split("."), group, option.rpartition("/")[2])
    return result


def _rename(parent: dict[str, Any], path: list[str], group: str, option: str) -> None:
    """Set the name of the section at a path, copying the mappings on the path."""
    first, *rest = path
    if not isinstance(parent.get(first), dict):
        return
    if not rest:
        parent[first] = with_name(group, option, parent[first])
        return
    parent[first] = dict(parent[first])
    _rename(parent[first], rest, group, option)
