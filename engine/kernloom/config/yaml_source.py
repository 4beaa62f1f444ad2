"""Hydra config source for folders, with Kernloom's YAML reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf

from kernloom.base.errors import ConfigError
from kernloom.base.files import read_text
from kernloom.config.naming import check_file
from kernloom.config.reader import CONFIG, load_yaml
from kernloom.config.resolvers import check_resolvers

SCHEME = "kernloom"


def shown_scheme() -> str:
    return "file"


class YamlSource(ConfigSource):
    """One configs/ folder, under a URL scheme of its own, so that Hydra's source is unaffected."""

    calls_resolvers: ClassVar[bool] = False
    """Whether a defaults list that was loaded calls a resolver, such as ${oc.env:NAME}."""

    open_maps: ClassVar[bool] = False
    """Whether overrides may add keys without a `+`, for jobs that check their keys themselves."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self._open = YamlSource.open_maps  # also in a process that gets this source from another
        # Hydra resolves the scheme of the class and reports that of the instance: to users, this
        # source is a folder like any other.
        self.__dict__["scheme"] = shown_scheme

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return self.is_group("")

    def is_group(self, config_path: str) -> bool:
        return not _hidden(config_path) and self._path(config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        return not _hidden(config_path) and self._file(config_path).is_file()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        found: list[str] = []
        for path in self._path(config_path).iterdir():
            below = f"{config_path}/{path.name}" if config_path else path.name
            self._list_add_result(found, below, path.name, results_filter)
        return sorted(set(found))

    def load_config(self, config_path: str) -> ConfigResult:
        path = self._file(config_path)
        if not path.exists():
            raise ConfigLoadError(f"Config not found : {path}")
        text = read_text(path, limit=CONFIG.size)
        data = load_yaml(text, where=str(path))
        if data is not None and not isinstance(data, dict):
            raise ConfigError("expected keys and values at the top", key=str(path))
        check_file(str(Path(config_path).parent), path.stem, data or {}, text, str(path))
        for text in _calls(data):
            check_resolvers(text, f"{path}: defaults")
            YamlSource.calls_resolvers = True
        config = OmegaConf.create(data or {})
        if self._open:
            _open(config)
        return ConfigResult(
            config=config,
            path=self.full_path(),
            provider=self.provider,
            header=self._get_header_dict(text[:512]),
        )

    def _path(self, config_path: str) -> Path:
        return Path(self.path) / config_path

    def _file(self, config_path: str) -> Path:
        return self._path(self._normalize_file_name(config_path))


def _open(config: DictConfig) -> None:
    """Open the maps of a section, or the sections of a file at the root: Hydra closes the root."""
    for node in (config, *(config._get_node(key) for key in config)):
        if isinstance(node, DictConfig):
            OmegaConf.set_struct(node, False)


def _hidden(config_path: str) -> bool:
    """Whether a path leaves the folder or contains hidden names."""
    return any(part.startswith(".") for part in config_path.split("/"))


def _calls(data: Any) -> list[str]:
    """The entries of a defaults list that call a resolver."""
    listed = data.get("defaults") if isinstance(data, dict) else None
    texts = [str(entry) for entry in listed] if isinstance(listed, list) else []
    return [text for text in texts if "${" in text and ":" in text.partition("${")[2]]
