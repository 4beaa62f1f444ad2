"""Hydra config source for folders, with Kernloom's YAML reader."""

from __future__ import annotations

from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf

from kernloom.base.errors import ConfigError
from kernloom.base.files import read_text
from kernloom.config.naming import check_file
from kernloom.config.reader import CONFIG, load_yaml


class YamlSource(FileConfigSource):
    """One configs/ folder, under a URL scheme of its own, so that Hydra's source is unaffected."""

    @staticmethod
    def scheme() -> str:
        return "kernloom"

    def is_group(self, config_path: str) -> bool:
        return not _hidden(config_path) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        return not _hidden(config_path) and super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path) / self._normalize_file_name(config_path)
        if not path.exists():
            raise ConfigLoadError(f"Config not found : {path}")
        text = read_text(path, limit=CONFIG.size)
        data = load_yaml(text, where=str(path))
        if data is not None and not isinstance(data, dict):
            raise ConfigError("expected keys and values at the top", key=str(path))
        check_file(str(Path(config_path).parent), path.stem, data or {}, text, str(path))
        return ConfigResult(
            config=OmegaConf.create(data or {}),
            path=f"{self.scheme()}://{self.path}",
            provider=self.provider,
            header=ConfigSource._get_header_dict(text[:512]),
        )


def _hidden(config_path: str) -> bool:
    """Whether a path leaves the folder or contains hidden names."""
    return any(part.startswith(".") for part in config_path.split("/"))
