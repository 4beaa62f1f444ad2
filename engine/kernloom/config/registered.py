"""Options of config groups that Hydra's plugins register in its ConfigStore.

Only the import of all plugins shows them, so the list is cached until a plugin, or a module that it
imports, changes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernloom.base.errors import UnavailableError
from kernloom.base.files import file_stamp, sha256_json, tree_stamps
from kernloom.base.sealed import read_sealed, write_sealed

STOCK = frozenset(
    {
        "hydra_ax_sweeper",
        "hydra_colorlog",
        "hydra_joblib_launcher",
        "hydra_nevergrad_sweeper",
        "hydra_optuna_sweeper",
        "hydra_ray_launcher",
        "hydra_rq_launcher",
        "hydra_submitit_launcher",
    }
)
"""Hydra's own plugins, which register options of Hydra's groups only."""
_NOT_PLUGIN_CODE = frozenset({"hydra", "omegaconf", "antlr4", "yaml", "kernloom", "numpy"})


class RegisteredOptions:
    """The options of all groups, except Hydra's own."""

    def __init__(self, cache: Path, *, may_import: bool = True) -> None:
        """Without `may_import`, there are no options unless the cache is up to date."""
        self._cache = cache
        self._may_import = may_import

    def names(self, group: str) -> list[str]:
        return self._found[0].get(group, [])

    def has_group(self, group: str) -> bool:
        return group in self._found[0]

    @property
    def stamp(self) -> str:
        """Changes with the code that registers options; empty without such plugins."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[dict[str, list[str]], str]:
        plugins = list(_plugins())
        if not plugins:
            return {}, ""
        own = [stamp for path in plugins for stamp in _stamps(path)]
        with contextlib.suppress(OSError, ValueError, KeyError):
            kept = read_sealed(self._cache)
            if kept["plugins"] == own and kept["imported"] == _file_stamps(kept["files"]):
                return kept["options"], _stamp_of(kept)
        if not self._may_import:
            return {}, ""
        try:
            files, options = _import_plugins()
        except UnavailableError:
            # Reported when Hydra composes; commands that need no composition go on.
            return {}, ""
        kept = {"plugins": own, "imported": _file_stamps(files), "files": files, "options": options}
        with contextlib.suppress(OSError):  # the cache only saves time
            write_sealed(self._cache, kept)
        return options, _stamp_of(kept)


def _stamp_of(kept: dict[str, Any]) -> str:
    return sha256_json([kept["plugins"], kept["imported"]])


def _plugins() -> Iterator[Path]:
    """Installed plugins of Hydra that may register options."""
    spec = find_spec("hydra_plugins")
    for folder in spec.submodule_search_locations or () if spec else ():
        with contextlib.suppress(OSError):
            for path in sorted(Path(folder).iterdir()):
                if path.stem not in STOCK and path.name[0] not in "._":
                    yield path


def _stamps(path: Path) -> Iterable[list[Any]]:
    return tree_stamps(path, ".py") if path.is_dir() else _file_stamps([str(path)])


def _file_stamps(files: Iterable[str]) -> list[list[Any]]:
    found = []
    for file in files:
        try:
            found.append([file, *file_stamp(Path(file))])
        except OSError:
            found.append([file])
    return found


def _import_plugins() -> tuple[list[str], dict[str, list[str]]]:
    """The files that plugins are made of, and the options that they register."""
    from hydra.core.config_store import ConfigStore

    from kernloom.config.hydra_search_path import load_plugins

    before = {*sys.modules}
    load_plugins()
    added = {*sys.modules} - before
    # If the plugins were imported before, any module may be one of theirs.
    names = added if any(name.startswith("hydra_plugins.") for name in added) else {*sys.modules}
    files = {
        str(file)
        for name in names
        if name.partition(".")[0] not in {*_NOT_PLUGIN_CODE, *sys.stdlib_module_names}
        and (file := getattr(sys.modules[name], "__file__", None))
    }
    store = ConfigStore.instance()
    options: dict[str, list[str]] = {}
    waiting = [name for name in store.list("") if name != "hydra" and not name.endswith(".yaml")]
    while waiting:
        group = waiting.pop()
        for entry in store.list(group):
            if entry.endswith(".yaml") and "/" not in entry:
                options.setdefault(group, []).append(entry.removesuffix(".yaml"))
            elif not entry.endswith(".yaml"):
                waiting.append(f"{group}/{entry}")
    return sorted(files), {group: sorted(names) for group, names in options.items()}
