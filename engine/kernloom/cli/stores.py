"""The store of a command that reads no experiment: the project's, or the one selected by `store`,
`store.path` and `store.url`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernloom.base.errors import UsageError, nearest
from kernloom.base.places import Places
from kernloom.config.groups import Groups, groups_of
from kernloom.config.overrides import Override, Overrides, spelled
from kernloom.config.settings import StoreSettings
from kernloom.run.stores import store_location

KEYS = ("path", "url")


def split_store(
    words: Sequence[str], places: Places, before: Iterable[Override] = ()
) -> tuple[Path | str, tuple[str, ...]]:
    """The store selected by words, or else by the overrides `before` them; and the other words."""
    groups = groups_of(places)
    mine = [word for word in words if word.startswith(("store=", "store.")) and "=" in word]
    chosen = Overrides(tuple(before))
    if mine:
        from kernloom.config.override_parser import parse_overrides

        chosen = chosen.then(parse_overrides(mine, groups, multirun=True))
    place = _chosen_store(chosen.about("store"), groups, places)
    return place, tuple(word for word in words if word not in mine)


def _chosen_store(overrides: Overrides, groups: Groups, places: Places) -> Path | str:
    """The store that overrides select, without composing a config."""
    option, values = "", dict[str, Any]()
    for override in overrides:
        if override.key == "store":
            option = ",".join(v if isinstance(v, str) else spelled(v) for v in override.values)
        else:
            values[override.key.removeprefix("store.")] = next(iter(override.values), None)
    for name in values:
        if name not in KEYS:
            raise UsageError(f"unknown key 'store.{name}'", hint=nearest(name, KEYS))
    if not option:
        option = groups.defaults(groups.read("", "kernloom")).get("store", "sqlite")
    data: Mapping[str, Any] = groups.read("store", option)
    chosen = {name: data.get(name) for name in KEYS} | values
    given = {name: str(value) if value else None for name, value in chosen.items()}
    return store_location(StoreSettings(str(data.get("name")), **given), places)
