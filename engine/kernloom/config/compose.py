"""From command-line words to plain, resolved data: one mapping per point.

Hydra's own loader builds the defaults list and merges the files, once per choice of groups. What it
would add for running applications (its own config, output folders, logging, plugin scan) is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kernloom.config.overrides import Override, parse_overrides
from kernloom.config.values import apply, merged, resolve
from kernloom.config.yaml_source import YamlSource
from kernloom.errors import ConfigError, nearest
from kernloom.places import Places

PRIMARY = "kernloom"
"""The root config: configs/kernloom.yaml."""
CASE_KEYS = ("sizes", "scalars", "tensors", "dtype")
"""What a case of a workload may change."""


@dataclass(frozen=True)
class Point:
    """One point of a sweep: the swept keys with their values, and the resolved config."""

    swept: dict[str, Any]
    data: dict[str, Any]


ResolveArch = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Composed data -> its arch section with `native` made concrete."""


class Composer:
    """Composes configs from the shipped and the project's configs/ folders."""

    def __init__(self, places: Places, resolve_arch: ResolveArch) -> None:
        version.setbase("1.3")
        registry = SourcesRegistry.instance()
        registry.types.setdefault("file", YamlSource)
        registry.register(StructuredConfigSource)
        search = ConfigSearchPathImpl()
        for folder in places.folders("configs"):
            search.append("main", f"file://{folder}")
        search.append("schema", "structured://")
        self.loader = ConfigLoaderImpl(search)
        self._resolve_arch = resolve_arch
        self._composed: dict[tuple[str, ...], dict[str, Any]] = {}

    def options(self, group: str) -> list[str]:
        return sorted(self.loader.get_group_options(group))

    def points(self, words: Sequence[str], *, multirun: bool) -> Iterator[Point]:
        """Every point the words describe, in Hydra's order: the last axis moves fastest."""
        overrides = parse_overrides(words, self.loader, multirun=multirun)
        for override in overrides:
            self._check_options(override)
        axes = [override.values or (None,) for override in overrides]
        for values in itertools.product(*axes):
            chosen = list(zip(overrides, values, strict=True))
            swept = {override.key: value for override, value in chosen if override.swept}
            yield Point(swept, self._data(chosen))

    def _check_options(self, override: Override) -> None:
        """An unknown option of a group is named before Hydra walks into it."""
        if not override.group or override.package:
            return
        options = self.options(override.key)
        for value in override.values:
            if isinstance(value, str) and value not in options:
                raise ConfigError(
                    f"unknown {override.key} '{value}'",
                    key=override.key,
                    hint=nearest(value, options),
                )

    def _data(self, chosen: list[tuple[Override, Any]]) -> dict[str, Any]:
        groups = tuple(o.hydra_text(value) for o, value in chosen if o.group)
        values = [(override, value) for override, value in chosen if not override.group]
        composed = self._compose(groups)
        data = _applied(composed, values)
        if data.get("case") not in (None, "default"):
            # A case changes the workload's defaults; what the command line says still wins.
            workload = _with_case(data["workload"], composed["workload"], data["case"])
            data = _applied({**composed, "workload": workload}, values)
        return resolve({**data, "arch": self._resolve_arch(data)})

    def _compose(self, groups: tuple[str, ...]) -> dict[str, Any]:
        if groups not in self._composed:
            self._composed[groups] = self._compose_by_hydra(list(groups))
        return self._composed[groups]

    def _compose_by_hydra(self, groups: list[str]) -> dict[str, Any]:
        from hydra.core.override_parser.overrides_parser import OverridesParser

        try:
            parsed = OverridesParser.create().parse_overrides(groups)
            repository = CachingConfigRepository(self.loader.repository)
            defaults = create_defaults_list(
                repo=repository,
                config_name=PRIMARY,
                overrides_list=parsed,
                prepend_hydra=False,
                skip_missing=False,
            )
            config = self.loader._compose_config_from_defaults_list(
                defaults=defaults.defaults, repo=repository
            )
            data = OmegaConf.to_container(config, resolve=False)
        except (HydraException, OmegaConfBaseException) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            lines = [line for line in lines if not line.startswith(("provider=", "Config search"))]
            raise ConfigError(". ".join(lines) or type(error).__name__) from None
        if not isinstance(data, dict):
            raise ConfigError(f"configs/{PRIMARY}.yaml is not a mapping")
        return {str(key): value for key, value in data.items()}


def _applied(data: dict[str, Any], values: list[tuple[Override, Any]]) -> dict[str, Any]:
    for override, value in values:
        data = apply(data, override, value)
    return data


def _with_case(final: dict[str, Any], workload: dict[str, Any], case: Any) -> dict[str, Any]:
    cases = final.get("cases") or {}
    if case not in cases:
        raise ConfigError(
            f"workload '{final.get('name')}' has no case '{case}'",
            key="case",
            hint=nearest(str(case), ["default", *cases]),
        )
    change = cases[case] or {}
    for name in change:
        if name not in CASE_KEYS:
            raise ConfigError(
                f"a case cannot change '{name}'",
                key=f"workload.cases.{case}",
                hint=nearest(name, CASE_KEYS),
            )
    result = merged(workload, change)
    if not isinstance(result, dict):
        raise ConfigError("expected keys and values", key=f"workload.cases.{case}")
    return result
