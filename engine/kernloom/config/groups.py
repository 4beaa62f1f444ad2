"""Options of config groups, read one by one without Hydra where possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import read_text, tree_stamps
from kernloom.config.naming import at_root, check_file, with_name


class Groups:
    """The options of each config group in a list of configs/ folders; the first folder wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(folders)
        self._composed: dict[tuple[str, str], dict[str, Any]] = {}
        self._stamps: list[Any] = []

    def exists(self, group: str) -> bool:
        return bool(group) and any(_is(Path.is_dir, folder / group) for folder in self._folders)

    def options(self, group: str) -> list[str]:
        files = (path for folder in self._folders for path in (folder / group).glob("*.yaml"))
        # Names with a leading dot are hidden, such as editors' lock files.
        return sorted({path.stem for path in files if not path.name.startswith(".")})

    def read(self, group: str, name: str) -> dict[str, Any]:
        """One option as its file describes it, with inherited files merged in. The defaults list
        of a file at the root of the config, such as a target's, is kept.

        Most files inherit from none and are read directly; Hydra composes the others.
        """
        from kernloom.config.reader import CONFIG, load_yaml

        for folder in self._folders:
            path = folder / group / f"{name}.yaml"
            if _is(Path.is_file, path):
                text = read_text(path, limit=CONFIG.size)
                data = load_yaml(text, where=str(path))
                if not isinstance(data, dict):
                    return {}
                check_file(group, name, data, text, str(path))
                if _inherits(data, group):
                    data = self._inherited(group, name, text)
                if not at_root(group, text):
                    return _without_defaults(with_name(group, name, data))
                own = {group: with_name(group, name, data[group])} if group in data else {}
                return {**data, **own}
        raise ConfigError(
            f"unknown {group} '{name}'", key=group, hint=nearest(name, self.options(group))
        )

    def _inherited(self, group: str, name: str, text: str) -> dict[str, Any]:
        """The composed option, in the form of a file without inheritance."""
        stamps = [stamp for folder in self._folders for stamp in tree_stamps(folder, ".yaml")]
        if stamps != self._stamps:
            self._stamps = stamps
            self._composed.clear()
        if (group, name) not in self._composed:
            from kernloom.config.hydra_compose import HydraComposer

            composed, chosen = HydraComposer(self._folders).compose_option(group, name)
            own = composed if at_root(group, text) else composed.get(group)
            defaults = [{f"/{other}": option} for other, option in chosen.items()]
            data = {**own, "defaults": defaults} if isinstance(own, dict) else {}
            self._composed[group, name] = data
        return self._composed[group, name]

    @staticmethod
    def defaults(data: Mapping[str, Any]) -> dict[str, str]:
        """Group -> option, from a file's defaults list."""
        chosen = {}
        for entry in data.get("defaults") or []:
            if isinstance(entry, Mapping):
                for group, option in entry.items():
                    chosen[str(group).removeprefix("override ").lstrip("/")] = str(option)
        return chosen


def _without_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "defaults"}


def _inherits(data: Mapping[str, Any], group: str) -> bool:
    """Whether a defaults list does more than choose options of other groups."""
    listed = data.get("defaults") or []
    return not isinstance(listed, list) or any(not _is_choice(item, group) for item in listed)


def _is_choice(entry: Any, group: str) -> bool:
    """Whether an entry of a defaults list does not change the keys of this group's section."""
    if entry == "_self_":
        return True
    if not isinstance(entry, Mapping) or len(entry) != 1:
        return False
    ((key, option),) = entry.items()
    other = str(key).removeprefix("override ")
    elsewhere = not group or (other.startswith("/") and other.strip("/") != group)
    return elsewhere and isinstance(option, str) and "@" not in other and "${" not in option


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Whether such a file or folder exists; false for names that no file can have."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False
