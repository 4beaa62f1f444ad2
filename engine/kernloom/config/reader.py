"""YAML reader: fast, only true and false are booleans, errors have file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kernloom.base.errors import ConfigError
from kernloom.base.files import read_text
from kernloom.config.yaml_builder import FLOAT, Bounds, TooMuchError, build

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH = 50
CONFIG = Bounds(size=1 << 20, values=50_000, depth=MAX_DEPTH)
RECIPE = Bounds(size=32 << 20, values=4_000_000, depth=MAX_DEPTH)
"""Bounds of a recipe, which holds a whole config per trial: enough for about 4,000 trials."""


class _Dumper(yaml.SafeDumper):
    """Quotes every text that the reader would parse as another type."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def dump_yaml(data: Any, width: int = 80) -> str:
    """YAML that `load_yaml` reads back as the same data."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=width)


def read_yaml(path: Path, bounds: Bounds = CONFIG) -> Any:
    """The plain data in a file; errors have file, line and column."""
    return load_yaml(read_text(path, limit=bounds.size), where=str(path), bounds=bounds)


def load_yaml(text: str, *, where: str, bounds: Bounds = CONFIG) -> Any:
    """The plain data in `text`, read from the file `where`."""
    try:
        return build(yaml.parse(text, _PARSER), bounds)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{error.problem}", key=f"{where}{line}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not YAML: {error}", key=where) from None
    except TooMuchError as error:
        hint = f"Allowed: {bounds.values:,} values, nested {bounds.depth} deep."
        raise ConfigError(str(error), key=where, hint=hint) from None
