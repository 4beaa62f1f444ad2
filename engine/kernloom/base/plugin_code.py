"""Digest of the code behind a name that another package registered by entry point.

A reference, generator, run stage or device of another package affects results, so its code is part
of a trial's identity: the file that defines it, the files of its top-level package, and everything
they import except Python's standard library. An installed third-party package counts by its
version, or by its files if no metadata states the version.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from kernloom.base.files import files_below, sha256_file, sha256_json

OURS = "kernloom"
_ELSEWHERE = frozenset({OURS, "numpy"})
"""Packages with their own entry in a trial's identity."""
_INSTALLED = ("site-packages", "dist-packages")
_CODE = (".py", ".so", ".pyd")


def is_ours(value: Any) -> bool:
    """Whether Kernloom itself defines a function or class."""
    return str(getattr(value, "__module__", "")).partition(".")[0] == OURS


def code_digest(value: Any, distribution: str) -> str:
    """Hash of the code that defines a function or class; `distribution` is the name and version of
    the package that registered it, if known."""
    top = str(getattr(value, "__module__", type(value).__module__)).partition(".")[0]
    return sha256_json([distribution, _closure(top)])[:32]


@cache
def _closure(first: str) -> dict[str, Any]:
    """Top-level module -> hashes of its files, or versions for a third-party package. Computed once
    per process, as Python imports a module once."""
    found: dict[str, Any] = {}
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in found or name in _ELSEWHERE or name in sys.stdlib_module_names:
            continue
        files = list(_files_of(name))
        installed = any(part in _INSTALLED for path in files[:1] for part in path.parts)
        if name != first and (installed or not files):
            found[name] = _versions(name) or [sha256_file(path) for path in files]
            continue
        found[name] = [sha256_file(path) for path in files]
        waiting += sorted({module for path in files for module in _imported_by(path)})
    return found


def _files_of(name: str) -> Iterator[Path]:
    """The code files of a top-level module or package, in a fixed order."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if not spec.submodule_search_locations:
        if spec.has_location and spec.origin:
            yield Path(spec.origin)
        return
    for folder in map(Path, spec.submodule_search_locations):
        yield from files_below(folder, _CODE)


def _imported_by(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, inside functions too."""
    if path.suffix != ".py":
        return set()
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _versions(name: str) -> list[str]:
    """The distributions that install a top-level module, with their versions. Their names may
    differ from the module's, and several may share a namespace."""
    # A partly removed distribution may have no name.
    names = sorted({*filter(None, _distributions().get(name, ()))})
    return [f"{found} {version(found)}" for found in names]


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Top-level module -> names of the distributions that install it, read once per process."""
    return packages_distributions()
