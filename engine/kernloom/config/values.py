"""Value overrides and references, applied to composed plain data.

Hydra composes once per choice of groups; value overrides are then applied here, so that each
further point of a sweep costs microseconds instead of a composition. Data is never changed in
place: a new point shares all unchanged parts with the composed data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernloom.base.digest import DigestCache, Section, as_plain, as_section, digest_of
from kernloom.base.errors import ConfigError, nearest
from kernloom.base.lookup import MISSING
from kernloom.config.convert import fields_at
from kernloom.config.overrides import Override
from kernloom.config.renamed import nearest_key
from kernloom.config.resolvers import NODE as _NODE
from kernloom.config.resolvers import check_resolvers, evaluate, reads_no_config, resolving_error
from kernloom.config.schema import Experiment
from kernloom.config.selects import SELECT, parse_select

_NESTED = (dict, list)
_PART = re.compile(f"{SELECT.pattern}|{_NODE.pattern}")
"""A reference: with groups 1 and 2 one that has a default, with group 3 a plain one."""
_UNSET = "???"
"""OmegaConf's mark of a value that is to be set."""
_DEEPEST = 20
"""Maximum length of a chain of references, to detect cycles."""
_MAX_EXPANDED = 200_000
"""Limit of values that the references of a section expand to; 64 characters count as one."""
Path = tuple[Any, ...]
"""Keys and indices on the path to a value."""


class _Budget:
    """Limit on the expansion of references: a few lines of them can double at every step."""

    def __init__(self) -> None:
        self._left = _MAX_EXPANDED

    def spend(self, value: Any, place: Path) -> None:
        self._left -= _size(value)
        if self._left < 0:
            problem = "its references stand for more values than are allowed"
            raise ConfigError(problem, key=".".join(map(str, place)))


def _size(value: Any) -> int:
    if isinstance(value, Section):
        return value.derive(_section_size)
    if isinstance(value, dict):
        return _section_size(value)
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return 1 + len(value) // 64 if isinstance(value, str) else 1


def _section_size(section: Mapping[str, Any]) -> int:
    return 1 + sum(map(_size, section.values()))


@dataclass(frozen=True)
class _References:
    """The `${...}` references in a section."""

    paths: list[Path]
    rare: bool
    """Whether some need OmegaConf to resolve."""


_NO_REFERENCES = _References([], rare=False)


def merged(base: Any, change: Any) -> Any:
    """`base` updated by `change`: mappings merge, everything else is replaced."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return as_section(change)
    result = dict(base)
    for key, value in change.items():
        result[key] = merged(base[key], value) if key in base else as_section(value)
    return Section(result)


class _UnknownKeyError(Exception):
    """A key that is neither in the config nor in the schema."""

    def __init__(
        self, above: list[str], name: str, node: Mapping[str, Any], known: frozenset[str]
    ) -> None:
        super().__init__(name)
        self.above, self.name, self.node, self.known = above, name, node, known


def apply(data: Section[Any], override: Override, value: Any) -> Section[Any]:
    """`data` with one value override applied."""
    try:
        result = _applied(data, override.key.split("."), 0, override, value)
    except _UnknownKeyError as unknown:
        raise _explained(data, override, unknown) from None
    if not isinstance(result, Section):
        raise ConfigError("the whole config cannot be replaced", key=override.key)
    return result


def _applied(node: Any, names: list[str], depth: int, override: Override, value: Any) -> Any:
    name, last = names[depth], depth == len(names) - 1
    adding = override.kind in ("add", "force")
    if isinstance(node, list):
        index = _index(node, name, ".".join(names[:depth]))
        changed: Any = list(node)
        if last and override.kind == "delete":
            del changed[index]
        else:
            changed[index] = (
                as_section(value)
                if last
                else _applied(node[index], names, depth + 1, override, value)
            )
        return changed
    if not isinstance(node, dict):
        where = ".".join(names[:depth])
        raise ConfigError(f"holds {node!r}, which has no key '{name}'", key=where)
    if name not in node and not adding:
        # A key with a default in the schema may be missing from all files.
        known = fields_at(Experiment, names[:depth])
        if name not in known or override.kind == "delete":
            raise _UnknownKeyError(names[:depth], name, node, known)
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
    return Section(changed)


def _explained(
    data: Mapping[str, Any], override: Override, unknown: _UnknownKeyError
) -> ConfigError:
    name, where = unknown.name, ".".join(unknown.above)
    if override.kind == "delete" and name in unknown.known:
        return ConfigError("has no value, so there is nothing to delete", key=override.key)
    hint = nearest_key(name, {*unknown.node, *unknown.known})
    if not where and (meant := _keys_that_end_in(data, override.key)):
        hint = f"Did you mean {' or '.join(repr(key) for key in meant)}?"
    section = data.get(unknown.above[0]) if where else None
    if isinstance(section, dict) and not unknown.known and "name" in section:
        # These names depend on the chosen option: another workload has others.
        hint = f"{hint.removesuffix('.')} (of {unknown.above[0]} {section['name']})."
    return ConfigError(f"unknown key '{name}'", key=where, hint=hint)


def _keys_that_end_in(data: Mapping[str, Any], end: str) -> list[str]:
    """Full keys that end in what the user wrote."""
    workload = data.get("workload")
    workload = workload if isinstance(workload, dict) else {}
    found: dict[str, None] = {}
    for part in ("sizes", "scalars"):
        found |= dict.fromkeys(f"workload.{part}.{name}" for name in _mapping(workload.get(part)))
    for kernel in _mapping(workload.get("kernels")).values():
        for transform, tunables in _tunables(_mapping(kernel), data).items():
            found |= dict.fromkeys(f"select.fixed.{transform}.{n}" for n in _mapping(tunables))
    for section in (
        "measure",
        "toolchain",
        "arch",
        "target",
        "select",
        "screen",
        "search",
        "fleet",
    ):
        names = {*_mapping(data.get(section)), *fields_at(Experiment, [section])}
        found |= dict.fromkeys(f"{section}.{name}" for name in sorted(names - {"name"}))
    exact = [key for key in found if key.endswith(f".{end}")]
    return exact or [key for key in found if key.lower().endswith(f".{end.lower()}")]


def _tunables(kernel: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tunables of the source that the target takes: those of others are refused."""
    sources, families = _mapping(kernel.get("sources")), _mapping(data.get("target")).get("sources")
    taken = (_mapping(sources.get(family)) for family in families or () if family in sources)
    own = next(taken, {}).get("tunables")
    return _mapping(kernel.get("tunables") if own is None else own)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _index(node: list[Any], name: str, where: str) -> int:
    if name.isdigit() and int(name) < len(node):
        return int(name)
    raise ConfigError(
        f"'{name}' is not an index of this list of {len(node)}",
        key=where,
        hint=f"Allowed: 0 to {len(node) - 1}.",
    )


def resolve(data: dict[str, Any], cache: DigestCache) -> Section[Any]:
    """`data` with every `${...}` replaced; OmegaConf resolves the rare kinds."""
    references = {name: _references_of(section) for name, section in data.items()}
    if any(found.rare for found in references.values()):
        for name, found in references.items():
            for path in found.paths:
                check_resolvers(_at(data[name], path), ".".join(map(str, (name, *path))))
        resolved: Section[Any] = as_section(_resolved_by_omegaconf(data))
        return resolved
    return Section(
        {
            name: _resolved_section(data, name, found.paths, cache) if found.paths else data[name]
            for name, found in references.items()
        }
    )


def _references_of(section: Any) -> _References:
    if isinstance(section, Section):
        return section.derive(_references_in)
    return _references_in(section) if isinstance(section, (list, str)) else _NO_REFERENCES


def _references_in(section: Any) -> _References:
    paths = _interpolated(section)
    if not paths:
        return _NO_REFERENCES
    return _References(paths, any(_is_rare(_at(section, path)) for path in paths))


def _is_rare(text: str) -> bool:
    """Whether OmegaConf must resolve a text with the whole config at hand."""
    plain = not _has_call(text) and "\\" not in text
    return not plain and not reads_no_config(text)


def _has_call(text: str) -> bool:
    """Whether a text holds more than references to keys by their full names, with or without a
    default."""
    return "${" in _NODE.sub("", SELECT.sub(_without_select, text))


def _without_select(match: re.Match[str]) -> str:
    """Nothing in place of a select that needs no parser."""
    return "" if parse_select(match) else match[0]


def _resolved_section(
    data: dict[str, Any], name: str, paths: list[Path], cache: DigestCache
) -> Any:
    """A section with its references replaced, cached for all points with the same referenced
    sections."""
    section = data[name]
    budget = _Budget()
    values = [_resolved(data, _at(section, path), (name, *path), 0, budget) for path in paths]

    def replaced() -> Any:
        result = section
        for path, value in zip(paths, values, strict=True):
            result = _replaced(result, path, value)
        return result

    return cache.by_key((resolve, digest_of(section), *map(digest_of, values)), replaced)


def _interpolated(data: Any) -> list[Path]:
    """The paths of all values that hold a `${...}`."""
    if isinstance(data, str):
        return [()] if "${" in data else []
    if isinstance(data, Section):
        # Cached for the parts that a changed section shares with its original.
        return data.derive(_interpolated_in)
    if isinstance(data, dict):
        return _interpolated_in(data)
    if isinstance(data, list):
        return [(i, *path) for i, value in enumerate(data) for path in _interpolated(value)]
    return []


def _interpolated_in(section: Mapping[str, Any]) -> list[Path]:
    return [(key, *path) for key, value in section.items() for path in _interpolated(value)]


def _resolved_by_omegaconf(data: dict[str, Any]) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        result = OmegaConf.to_container(OmegaConf.create(as_plain(data)), resolve=True)
    except OmegaConfBaseException as error:
        raise resolving_error(error) from None
    if not isinstance(result, dict):
        raise ConfigError("the config is not a mapping")
    return {str(key): value for key, value in result.items()}


def _at(data: Any, path: Path) -> Any:
    for name in path:
        data = data[name]
    return data


def _replaced(node: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    changed: Any = dict(node) if isinstance(node, dict) else list(node)
    changed[path[0]] = _replaced(node[path[0]], path[1:], value)
    return Section(changed) if isinstance(changed, dict) else changed


def _resolved_within(
    data: Mapping[str, Any], node: Any, place: Path, depth: int, budget: _Budget
) -> Any:
    """A referenced value, with the references inside it replaced."""
    if isinstance(node, str):
        return _resolved(data, node, place, depth, budget) if "${" in node else node
    for path in _interpolated(node):
        node = _replaced(node, path, _resolved(data, _at(node, path), place, depth, budget))
    return node


def _resolved(data: Mapping[str, Any], text: str, place: Path, depth: int, budget: _Budget) -> Any:
    if depth > _DEEPEST:
        raise ConfigError("refers to itself", key=".".join(map(str, place)))

    def look_up(reference: str, default: Any = MISSING) -> Any:
        node: Any = data
        for name in reference.split("."):
            if isinstance(node, str) and "${" in node:
                node = _resolved(data, node, place, depth + 1, budget)
            if isinstance(node, list) and name.isdigit() and int(name) < len(node):
                node = node[int(name)]
                continue
            if not isinstance(node, dict) or name not in node:
                if default is not MISSING:
                    return default
                raise ConfigError(
                    f"'${{{reference}}}' refers to nothing: unknown key '{name}'",
                    key=".".join(map(str, place)),
                    hint=nearest(name, node if isinstance(node, dict) else ()),
                )
            node = node[name]
        if node == _UNSET and default is not MISSING:
            return default
        found = _resolved_within(data, node, place, depth + 1, budget)
        budget.spend(found, place)
        return found

    if _has_call(text):
        references = {name: as_plain(look_up(name)) for name in _NODE.findall(text)}
        found = evaluate(text, references, ".".join(map(str, place)))
        budget.spend(found, place)
        return as_section(found)

    def value(match: re.Match[str]) -> Any:
        select = parse_select(match) if match[1] else None
        if select is None:
            return look_up(match[3])
        default = look_up(select.reference) if select.reference else select.default
        return look_up(select.key, default)

    whole = _PART.fullmatch(text)
    if whole:
        return value(whole)
    return _PART.sub(lambda match: str(value(match)), text)
