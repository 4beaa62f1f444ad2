"""A source tree with small programs of a test's own, and the shipped configs, engine and
SConstruct."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import kernloom
from kernloom.base.places import Places, share_folder


def small_tree(share: Path, native: Mapping[str, str]) -> Path:
    """The tree; `native` has the files below native/ by their path."""
    for name, text in native.items():
        path = share / "native" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(share_folder() / "configs", share / "configs")
    shutil.copy(share_folder() / "SConstruct", share)
    engine = Path(kernloom.__file__).parent
    shutil.copytree(
        engine, share / "engine" / engine.name, ignore=shutil.ignore_patterns("__pycache__")
    )
    return share


def places_in(share: Path) -> Places:
    return Places(share, None, share / "build", share / ".kernloom" / "store.db")
