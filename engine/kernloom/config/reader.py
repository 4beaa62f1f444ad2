"""Reads YAML: fast, with true and false as the only booleans, and errors with file and line."""

from __future__ import annotations

import re
from typing import Any

import yaml

from kernloom.errors import ConfigError

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)|[-+]?(?:\d+\.\d*|\.\d+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
MAX_DEPTH = 50
MAX_VALUES = 500_000
_REPLACED = {f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "timestamp")}


class _Loader(_BASE):  # type: ignore[misc]
    """YAML 1.1 less its surprises: `off` is text, `1e-6` a number, a repeated key an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' stands here twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in _BASE.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


class _Dumper(yaml.SafeDumper):
    """Quotes every text that our reader would take for something else."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def dump_yaml(data: Any) -> str:
    """YAML that `load_yaml` reads back as the same data."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False)


def load_yaml(text: str, *, where: str) -> Any:
    """The plain data in `text`; a mistake is named with file, line and column."""
    try:
        data = yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{error.problem}", key=f"{where}{line}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not YAML: {error}", key=where) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", key=where) from None
    _check_extent(data, where)
    return data


def _check_extent(data: Any, where: str) -> None:
    """A few lines with aliases can stand for more than memory holds, or contain themselves."""
    seen = 0
    waiting = [(data, 0)]
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > MAX_DEPTH or seen > MAX_VALUES:
            problem = "is nested too deeply" if depth > MAX_DEPTH else "holds too many values"
            raise ConfigError(problem, key=where)
        if isinstance(value, dict):
            waiting.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            waiting.extend((inner, depth + 1) for inner in value)
