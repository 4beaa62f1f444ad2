"""Config files looked at one by one, without composing: for what must not wait for Hydra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernloom.errors import ConfigError, nearest


class Groups:
    """The options of each config group in a list of configs/ folders, first one wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(folders)

    def exists(self, group: str) -> bool:
        return bool(group) and any((folder / group).is_dir() for folder in self._folders)

    def options(self, group: str) -> list[str]:
        files = (path for folder in self._folders for path in (folder / group).glob("*.yaml"))
        # A dot in front: hidden, such as the locks that editors leave.
        return sorted({path.stem for path in files if not path.name.startswith(".")})

    def read(self, group: str, name: str) -> dict[str, Any]:
        """One file's own data; what its defaults list would add is not there."""
        from kernloom.config.reader import load_yaml

        for folder in self._folders:
            path = folder / group / f"{name}.yaml"
            if path.is_file():
                data = load_yaml(path.read_text(encoding="utf-8"), where=str(path))
                return data if isinstance(data, dict) else {}
        raise ConfigError(
            f"unknown {group} '{name}'", key=group, hint=nearest(name, self.options(group))
        )

    @staticmethod
    def defaults(data: Mapping[str, Any]) -> dict[str, str]:
        """Group -> option of a file's defaults list."""
        chosen = {}
        for entry in data.get("defaults") or []:
            if isinstance(entry, Mapping):
                for group, option in entry.items():
                    chosen[str(group).removeprefix("override ").lstrip("/")] = str(option)
        return chosen
