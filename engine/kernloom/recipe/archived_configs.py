"""Checks of config files in an archive: they hold data, and cannot reach what names programs, flags
or places of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.config.reader import load_yaml
from kernloom.recipe.fields import LOCAL_KEYS
from kernloom.recipe.request import check_references

GROUPS = ("workload", "kernel", "measure", "sweep", "experiment", "runtime", "select")
"""Config groups that name no program and no compiler flag."""
LOCAL_GROUPS = tuple(key for key in LOCAL_KEYS if key != "sweep")
PRESETS = "experiment"
OWN_GROUPS = ("toolchain", "target", "arch", "pipeline")
"""Groups that a preset may select from, but not change."""
_HEADER = re.compile(r"#.*@\s*package\b\s*(.*)")
_PACKAGE = re.compile(r"kernels\.\w+|_here_", re.ASCII)
_ADVICE = "An archive has configs that are data; see `kernloom recipe unpack` in the guide."


def check_archived_config(name: str, content: bytes) -> None:
    """Refuse the config file `name`, configs/GROUP/..., unless it is data of its own group."""
    group = name.split("/")[1]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8", key=name) from None
    if not name.endswith(".yaml"):
        raise ConfigError("is no config: its name does not end in .yaml", key=name)
    for found in _HEADER.finditer(text):
        if group != PRESETS or found[1].strip() != "_global_":
            raise ConfigError(
                f"'{found[0]}' would let it change other parts of the config",
                key=name,
                hint=_ADVICE,
            )
    data = load_yaml(text, where=name)
    if not isinstance(data, Mapping):
        raise ConfigError("expected keys and values", key=name)
    check_references(data, name)
    for entry in _defaults(data, name):
        _check_default(entry, group, name)
    if group == PRESETS:
        refused = (*OWN_GROUPS, *LOCAL_GROUPS, "hydra")
        for key in data:
            if str(key).split(".")[0] in refused:
                raise ConfigError(
                    f"a preset in an archive cannot set '{key}'",
                    key=name,
                    hint=f"It can select by name: defaults: [override /{key}: NAME].",
                )


def _defaults(data: Mapping[str, Any], name: str) -> Iterator[str]:
    """The groups in the defaults list."""
    entries = data.get("defaults") or []
    if not isinstance(entries, list):
        raise ConfigError("expected a list", key=f"{name}: defaults")
    for entry in entries:
        yield from map(str, entry) if isinstance(entry, Mapping) else [str(entry)]


def _check_default(entry: str, group: str, name: str) -> None:
    """Refuse an entry whose config would go into another part than that of its file."""
    words = entry.split()
    chosen, _, package = (words[-1] if words else "").partition("@")
    root = chosen.lstrip("/").split("/")[0]
    allowed = not package or _PACKAGE.fullmatch(package)
    if not allowed or ":" in package or root in ("hydra", "..", *LOCAL_GROUPS):
        raise ConfigError(
            f"'{entry}' in its defaults would change other parts of the config",
            key=name,
            hint=_ADVICE,
        )
    if chosen.startswith("/") and group != PRESETS and root not in GROUPS:
        raise ConfigError(
            f"'{entry}' in its defaults selects what names programs or flags",
            key=name,
            hint=f"Allowed: {', '.join(GROUPS)}.",
        )
