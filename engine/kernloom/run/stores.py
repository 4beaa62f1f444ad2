"""The store that an experiment selects: a file, by default the project's, or a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernloom.base.errors import ConfigError
from kernloom.base.places import Places
from kernloom.config.settings import StoreSettings
from kernloom.store.database import EXAMPLE, check_url
from kernloom.store.store import Store, open_store

if TYPE_CHECKING:
    # Not imported at run time: `results` does not need it and starts faster.
    from kernloom.config.schema import Experiment
    from kernloom.run.assembly import Assembly


def store_of(assembly: Assembly, experiment: Experiment) -> Store:
    return open_store(store_location(experiment.store, assembly.places))


def store_location(chosen: StoreSettings, places: Places) -> Path | str:
    """The file or the URL of a store."""
    if chosen.url and chosen.path:
        raise ConfigError("a store has a path or a url, not both", key="store")
    if chosen.url:
        return check_url(chosen.url)
    if chosen.name == "postgres":
        raise ConfigError("store=postgres needs a URL", key="store.url", hint=EXAMPLE)
    if not chosen.path:
        return places.store
    path = Path(chosen.path)
    # A device or a pipe accepts data and keeps nothing.
    if path.exists() and not path.is_file():
        raise ConfigError(
            f"'{path}' is not a regular file",
            key="store.path",
            hint="Name a file; it is made where there is none.",
        )
    # Another folder that does not exist is most likely a typo, which nobody would notice.
    if not path.parent.is_dir() and path.parent.resolve() != places.store.parent.resolve():
        raise ConfigError(
            f"there is no folder {path.parent} for {path.name}",
            key="store.path",
            hint="Make the folder first, or name another file.",
        )
    return path
