"""Composition by Hydra's public API: defaults lists and merging of files, and nothing else.

Values are applied to the composed data by `values`, so Hydra composes once per choice of groups.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from kernloom.base.errors import ConfigError, nearest
from kernloom.config.groups import Groups
from kernloom.config.hydra_search_path import SearchFolder, search_path
from kernloom.config.naming import with_names
from kernloom.config.resolvers import failed_resolver
from kernloom.config.yaml_source import YamlSource

PRIMARY = "kernloom"
"""The root config: configs/kernloom.yaml."""
VERSION_BASE = "1.3"
_TWICE = re.compile(r"Multiple values for (\S+)\. To override a value use 'override \S+: (.*)'")
_WITHOUT_HYDRA_S_OWN = tuple(
    f"~hydra/{group}"
    for entry in HydraConf().defaults
    for group, option in entry.items()
    if option is not None
)
"""Overrides that leave out Hydra's logging, help, launcher and so on, a tenth of the time: they
are no part of an experiment."""


class HydraComposer:
    """Composes from a list of configs/ folders; files in earlier folders shadow later ones."""

    def __init__(
        self, folders: Sequence[Path], say: Callable[[str], None] = lambda note: None
    ) -> None:
        self._groups = Groups(folders)
        self._say = say
        """Called with Hydra's warnings about config files."""
        self._folders = [SearchFolder(folder) for folder in folders]
        self.cacheable = True
        """Whether the last composition depends on config files only."""

    def compose(self, groups: Sequence[str]) -> dict[str, Any]:
        """The merged config files for these group choices, interpolations unresolved."""
        YamlSource.calls_resolvers = False
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            composed = with_names(*self._compose(PRIMARY, groups))
        for note in dict.fromkeys(" ".join(str(warning.message).split()) for warning in warned):
            self._say(f"Hydra warns: {note}")
        self.cacheable = not YamlSource.calls_resolvers
        return composed

    def compose_option(self, group: str, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """One option of a group, merged with its defaults list, and the options of other groups
        (group -> option) that the list chooses."""
        # Hydra warns about a defaults list without `_self_`, which only the root config needs.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._compose(f"{group}/{name}" if group else name, ())

    def _compose(
        self, primary: str, overrides: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        with readable_errors(primary, self._groups):
            config = self._composed(primary, overrides)
            chosen = dict(config.hydra.runtime.choices)
            with open_dict(config):
                del config["hydra"]
            data = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
        if not isinstance(data, dict):
            raise ConfigError(f"configs/{primary}.yaml is not a mapping")
        known = {g: str(o) for g, o in chosen.items() if o and not g.startswith("hydra/")}
        return {str(key): value for key, value in data.items()}, known

    def _composed(self, primary: str, overrides: Sequence[str]) -> DictConfig:
        """The config with Hydra's own. A Hydra application that calls Kernloom stays as it is."""
        outer = GlobalHydra.instance()
        before = outer.hydra
        outer.clear()
        try:
            folders = [folder for folder in self._folders if folder.path.is_dir()]
            with (
                search_path(folders),
                initialize_config_dir(
                    str(folders[0].path), job_name=PRIMARY, version_base=VERSION_BASE
                ),
            ):
                every = [*overrides, *_WITHOUT_HYDRA_S_OWN]
                return compose(primary, every, return_hydra_config=True)
        finally:
            GlobalHydra.instance().hydra = before


@contextmanager
def readable_errors(primary: str, groups: Groups) -> Iterator[None]:
    """Turn Hydra's errors into messages about the user's files and overrides."""
    try:
        yield
    except MissingConfigException as error:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        options = [str(option) for option in error.options or groups.options(group)]
        raise ConfigError(
            f"unknown {group or 'config'} '{name}' in a defaults list",
            hint=nearest(name, options),
        ) from None
    except RecursionError:
        raise ConfigError(
            f"the defaults lists of {primary}.yaml and the files it names lead back to themselves",
            hint="A file cannot be among its own defaults, nor among those of its defaults.",
        ) from None
    except AssertionError:
        # Hydra's message is about its own code.
        raise ConfigError(f"{primary}.yaml has a defaults list that makes no sense") from None
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        failure = failed_resolver(error)
        if failure:
            raise failure from None
        cause = error.__cause__
        said = [str(error), *([str(cause)] if isinstance(cause, OmegaConfBaseException) else [])]
        lines = [line.strip() for text in said for line in text.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("provider=", "Config search"))]
        text = ". ".join(line.rstrip(".") for line in lines)
        if twice := _TWICE.search(text):
            group, option = twice.groups()
            raise ConfigError(
                f"an option of the group '{group}' is chosen already",
                hint=f"Write {group}={option} without + on the command line, and "
                f"`override /{group}: {option}` in a defaults list.",
            ) from None
        raise ConfigError(text or type(error).__name__) from None
