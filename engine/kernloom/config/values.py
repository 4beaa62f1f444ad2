"""Changing values of composed plain data, and resolving what refers to them.

Hydra composes once per choice of groups; value overrides are then applied here, so that one more
point of a sweep costs microseconds instead of a composition. Nothing is changed in place: a new
point shares with the composed data all that it does not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernloom.config.convert import fields_at
from kernloom.config.overrides import Override
from kernloom.config.schema import Experiment
from kernloom.errors import ConfigError, nearest
from kernloom.remember import ById

_NODE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_places: ById[list[tuple[Any, ...]]] = ById()
_sections: ById[Any] = ById()
_NESTED = (dict, list)
_DEEPEST = 20
"""How many references may lead to the next before we call it a circle."""


def merged(base: Any, change: Any) -> Any:
    """`change` laid over `base`: mappings merge, everything else is replaced."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    result = dict(base)
    for key, value in change.items():
        result[key] = merged(base[key], value) if key in base else value
    return result


def apply(data: dict[str, Any], override: Override, value: Any) -> dict[str, Any]:
    """`data` with one value override carried out."""
    result = _applied(data, override.key.split("."), 0, override, value)
    if not isinstance(result, dict):
        raise ConfigError("the whole config cannot be replaced", key=override.key)
    return result


def _applied(node: Any, names: list[str], depth: int, override: Override, value: Any) -> Any:
    name, where, last = names[depth], ".".join(names[:depth]), depth == len(names) - 1
    adding = override.kind in ("add", "force")
    if isinstance(node, list):
        index = _index(node, name, where)
        changed: Any = list(node)
        if last and override.kind == "delete":
            del changed[index]
        else:
            changed[index] = (
                value if last else _applied(node[index], names, depth + 1, override, value)
            )
        return changed
    if not isinstance(node, dict):
        raise ConfigError(f"holds {node!r}, which has no key '{name}'", key=where)
    if name not in node and not adding:
        # A key that the schema gives a default need not stand in any file.
        known = fields_at(Experiment, names[:depth])
        if name not in known or override.kind == "delete":
            allowed = {*node, *known}
            raise ConfigError(f"unknown key '{name}'", key=where, hint=nearest(name, allowed))
    changed = dict(node)
    if not last:
        below = {} if node.get(name) is None else node[name]
        changed[name] = _applied(below, names, depth + 1, override, value)
    elif override.kind == "delete":
        if value not in (None, node[name]):
            raise ConfigError(
                f"holds {node[name]!r}, not {value!r}, so it is not deleted",
                key=override.key,
                hint=f"Delete it whatever it holds: ~{override.key}.",
            )
        del changed[name]
    elif override.kind == "add" and node.get(name) is not None and not isinstance(value, _NESTED):
        raise ConfigError("is there already", key=override.key, hint="Leave the + away.")
    else:
        changed[name] = merged(node.get(name), value)
    return changed


def _index(node: list[Any], name: str, where: str) -> int:
    if name.isdigit() and int(name) < len(node):
        return int(name)
    raise ConfigError(
        f"'{name}' is not an index of this list of {len(node)}",
        key=where,
        hint=f"Allowed: 0 to {len(node) - 1}.",
    )


def resolve(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with every `${...}` replaced; OmegaConf does the rare kinds that we do not."""
    places = {name: _places.get(_interpolated_below, section) for name, section in data.items()}
    texts = [_at(data[name], path) for name, paths in places.items() for path in paths]
    if any("${" in _NODE.sub("", text) or "\\" in text for text in texts):
        return _resolved_by_omegaconf(data)
    return {
        name: _resolved_section(data, name, paths) if paths else data[name]
        for name, paths in places.items()
    }


def _resolved_section(data: dict[str, Any], name: str, paths: list[tuple[Any, ...]]) -> Any:
    """A section with its references replaced; the same objects give the same object again."""
    section = data[name]
    values = [_resolved(data, _at(section, path), (name, *path), 0) for path in paths]

    def replaced(section: Any, *values: Any) -> Any:
        for path, value in zip(paths, values, strict=True):
            section = _replaced(section, path, value)
        return section

    return _sections.get(replaced, section, *values)


def _interpolated_below(section: Any) -> list[tuple[Any, ...]]:
    """As `_interpolated`, but what a changed section still shares is looked through once."""
    if not isinstance(section, dict):
        return _interpolated(section)
    return [
        (key, *path)
        for key, value in section.items()
        for path in (
            _places.get(_interpolated, value) if isinstance(value, dict) else _interpolated(value)
        )
    ]


def _interpolated(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values that hold a `${...}`."""
    if isinstance(data, str):
        return [path] if "${" in data else []
    if isinstance(data, dict):
        return [p for key, value in data.items() for p in _interpolated(value, (*path, key))]
    if isinstance(data, list):
        return [p for i, value in enumerate(data) for p in _interpolated(value, (*path, i))]
    return []


def _resolved_by_omegaconf(data: dict[str, Any]) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        result = OmegaConf.to_container(OmegaConf.create(data), resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0], key=str(error.full_key or "")) from None
    if not isinstance(result, dict):
        raise ConfigError("the config is not a mapping")
    return {str(key): value for key, value in result.items()}


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        data = data[name]
    return data


def _replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = dict(node) if isinstance(node, dict) else list(node)
    changed[path[0]] = _replaced(node[path[0]], path[1:], value)
    return changed


def _resolved_within(data: Mapping[str, Any], node: Any, place: tuple[Any, ...], depth: int) -> Any:
    """What is referred to, with the references inside it replaced."""
    if isinstance(node, str):
        return _resolved(data, node, place, depth) if "${" in node else node
    for path in _places.get(_interpolated, node) if isinstance(node, _NESTED) else ():
        node = _replaced(node, path, _resolved(data, _at(node, path), place, depth))
    return node


def _resolved(data: Mapping[str, Any], text: str, place: tuple[Any, ...], depth: int) -> Any:
    if depth > _DEEPEST:
        raise ConfigError("refers to itself", key=".".join(map(str, place)))

    def look_up(reference: str) -> Any:
        node: Any = data
        for name in reference.split("."):
            if isinstance(node, str) and "${" in node:
                node = _resolved(data, node, place, depth + 1)
            if isinstance(node, list) and name.isdigit() and int(name) < len(node):
                node = node[int(name)]
                continue
            if not isinstance(node, dict) or name not in node:
                raise ConfigError(
                    f"'${{{reference}}}' refers to nothing: unknown key '{name}'",
                    key=".".join(map(str, place)),
                    hint=nearest(name, node if isinstance(node, dict) else ()),
                )
            node = node[name]
        return _resolved_within(data, node, place, depth + 1)

    whole = _NODE.fullmatch(text)
    if whole:
        return look_up(whole.group(1))
    return _NODE.sub(lambda match: str(look_up(match.group(1))), text)
