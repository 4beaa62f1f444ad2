"""Options of config groups, from files and from Hydra's plugins; without Hydra where possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import read_text, tree_stamps
from kernloom.base.places import Places
from kernloom.config.naming import AT_ROOT, at_root, check_file, with_name
from kernloom.config.registered import RegisteredOptions

REGISTERED = "registered.json"
"""File with the options of Hydra's plugins, in the cache of compositions."""


def groups_of(places: Places) -> Groups:
    """The options of the shipped and the project's configs/ folders, and of Hydra's plugins."""
    cache = composed_cache(places)
    return Groups(places.folders("configs"), RegisteredOptions(cache / REGISTERED))


def composed_cache(places: Places) -> Path:
    return places.cache / "composed"


class Groups:
    """The options of each config group in a list of configs/ folders; the first folder wins."""

    def __init__(
        self, folders: Sequence[Path], registered: RegisteredOptions | None = None
    ) -> None:
        self.folders = list(folders)
        self._registered = registered
        self._composed: dict[tuple[str, str], dict[str, Any]] = {}
        self._stamps: list[Any] = []

    def exists(self, group: str) -> bool:
        if not group:
            return False
        in_files = any(_is(Path.is_dir, folder / group) for folder in self.folders)
        return in_files or (self._registered is not None and self._registered.has_group(group))

    def options(self, group: str) -> list[str]:
        files = (path for folder in self.folders for path in (folder / group).glob("*.yaml"))
        # Names with a leading dot are hidden, such as editors' lock files.
        names = {path.stem for path in files if not path.name.startswith(".")}
        return sorted({*names, *(self._registered.names(group) if self._registered else ())})

    def read(self, group: str, name: str) -> dict[str, Any]:
        """One option as its file describes it, with inherited files merged in. The defaults list
        of a file at the root of the config, such as a target's, is kept.

        Most files inherit from none and are read directly; Hydra composes the others.
        """
        from kernloom.config.reader import CONFIG, load_yaml

        for folder in self.folders:
            path = folder / group / f"{name}.yaml"
            if _is(Path.is_file, path):
                text = read_text(path, limit=CONFIG.size)
                data = load_yaml(text, where=str(path))
                if not isinstance(data, dict):
                    return {}
                check_file(group, name, data, text, str(path))
                if _inherits(data, group):
                    data = self._composed_option(group, name, root=at_root(group, text))
                if not at_root(group, text):
                    return _without_defaults(with_name(group, name, data))
                return _named_at_root(group, name, data)
        if self._registered and name in self._registered.names(group):
            data = self._composed_option(group, name, root=group in AT_ROOT)
            if group in AT_ROOT:
                return _named_at_root(group, name, data)
            return _without_defaults(with_name(group, name, data))
        raise ConfigError(
            f"unknown {group} '{name}'", key=group, hint=nearest(name, self.options(group))
        )

    def changes_own_section_only(self, group: str, name: str) -> bool:
        """Whether an option cannot change other sections: its file has neither a package header
        nor a defaults list."""
        from kernloom.config.reader import CONFIG, load_yaml

        for folder in self.folders:
            path = folder / group / f"{name}.yaml"
            if _is(Path.is_file, path):
                text = read_text(path, limit=CONFIG.size)
                data = load_yaml(text, where=str(path))
                return isinstance(data, dict) and "defaults" not in data and "@package" not in text
        return False

    def _composed_option(self, group: str, name: str, *, root: bool) -> dict[str, Any]:
        """The composed option, in the form of a file without inheritance. `root`: its keys belong
        to the root of the config."""
        stamps = [stamp for folder in self.folders for stamp in tree_stamps(folder, ".yaml")]
        if stamps != self._stamps:
            self._stamps = stamps
            self._composed.clear()
        if (group, name) not in self._composed:
            from kernloom.config.hydra_compose import HydraComposer

            composed, chosen = HydraComposer(self.folders).compose_option(group, name)
            own = composed if root else composed.get(group)
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
                    if option is not None:
                        chosen[str(group).removeprefix("override ").lstrip("/")] = str(option)
        return chosen


def _named_at_root(group: str, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    own = {group: with_name(group, name, data[group])} if group in data else {}
    return {**data, **own}


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
    plain = option is None or (isinstance(option, str) and "${" not in option)
    return elsewhere and plain and "@" not in other


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Whether such a file or folder exists; false for names that no file can have."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False
