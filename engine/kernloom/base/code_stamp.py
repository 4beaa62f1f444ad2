"""Hash of the code that computed a cached result, so that the cache is invalid for other code."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import kernloom
from kernloom import __version__
from kernloom.base.files import sha256_file, sha256_json

_PACKAGE = Path(kernloom.__file__).resolve().parent


@cache
def code_stamp(*modules: str, packages: tuple[str, ...] = ()) -> str:
    """A hash of Kernloom's version, of these modules (`plan/render`) and of the versions of other
    packages. Imports none of them."""
    ours = [_ours(module) for module in modules]
    return sha256_json([__version__, ours, [_others(package) for package in packages]])


def _ours(module: str) -> str:
    if not (_PACKAGE / "__init__.py").exists():
        return ""  # Installed without sources: the version has to do.
    return sha256_file(_PACKAGE / f"{module}.py")


def _others(package: str) -> list[Any]:
    """Version evidence of an installed package: names of metadata, mtime and size of its file."""
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        return []
    origin = Path(found.origin)
    try:
        status = origin.stat()
        names = [path.name for path in origin.parent.parent.iterdir()]
    except OSError:
        return []
    metadata = [
        name
        for name in names
        if name.lower().startswith((f"{package}-", f"{package}_"))
        and name.endswith((".dist-info", ".egg-info"))
    ]
    return [sorted(metadata), status.st_mtime_ns, status.st_size]
