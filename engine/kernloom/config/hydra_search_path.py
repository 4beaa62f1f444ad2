"""Hydra with Kernloom's config folders: the search path of a composition or of a Hydra app.

Hydra asks its search path plugins whenever it is initialised. Kernloom's plugin is registered in
this process only, and does nothing outside of `search_path`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath, SearchPathElement
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from kernloom.base.errors import UnavailableError
from kernloom.base.streams import stdout_to_stderr
from kernloom.config.yaml_source import SCHEME, YamlSource

MAIN = "main"
"""Hydra's name for the folder of the application."""


@dataclass(frozen=True)
class SearchFolder:
    """A folder of the search path, and the name under which Hydra lists it."""

    path: Path
    provider: str = MAIN


class FolderPlugin(SearchPathPlugin):
    """Replaces the application's folder by Kernloom's, highest priority first."""

    folders: tuple[SearchFolder, ...] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if not FolderPlugin.folders:
            return
        path = search_path.get_path()
        others = [element for element in path if element.provider != MAIN]
        ours = [
            SearchPathElement(folder.provider, f"{SCHEME}://{folder.path}")
            for folder in FolderPlugin.folders
        ]
        # Hydra's own configs come first.
        path[:] = [*others[:1], *ours, *others[1:]]


@contextmanager
def search_path(folders: Sequence[SearchFolder]) -> Iterator[None]:
    """Use these folders wherever Hydra is initialised inside the block."""
    plugins = load_plugins()
    plugins.register(YamlSource)
    plugins.register(FolderPlugin)
    before = FolderPlugin.folders
    FolderPlugin.folders = tuple(folders)
    try:
        yield
    finally:
        FolderPlugin.folders = before


def load_plugins() -> Plugins:
    """Hydra's plugins, imported on the first call."""
    # Warnings of installed plugins are not about this command.
    with warnings.catch_warnings(), stdout_to_stderr():
        warnings.simplefilter("ignore")
        try:
            return Plugins.instance()
        except (Exception, SystemExit) as error:  # whatever the code of another package raises
            raise UnavailableError(
                f"a plugin of Hydra cannot be loaded: {_place(error)}{type(error).__name__}: "
                f"{error}",
                hint="Mend or remove the package that has this plugin.",
            ) from None


def _place(error: BaseException) -> str:
    """The file and line of a plugin that an error comes from."""
    trace, place = error.__traceback__, ""
    while trace:
        file = trace.tb_frame.f_code.co_filename
        if "hydra_plugins" in file:
            place = f"{file}:{trace.tb_lineno}: "
        trace = trace.tb_next
    return place
