"""Further config folders: `hydra.searchpath`, on the command line or in the root config.

Kernloom's own folders come first, as in Hydra: a folder of the search path adds options and shadows
none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.base.files import read_text
from kernloom.base.places import Places
from kernloom.config.overrides import Override

KEY = "hydra.searchpath"
ROOT_FILE = "kernloom.yaml"
_WORD = re.compile(rf"\+{{0,2}}{re.escape(KEY)}=", re.ASCII)
_SCHEME = re.compile(r"(\w+)://(.*)", re.DOTALL)
_SIMPLE_ENTRY = re.compile(r"""'([^'\\]*)'|"([^"\\]*)"|([^\[\],'"\s]+)""")


def is_search_path(word: str) -> bool:
    return _WORD.match(word) is not None


def split_search_path(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The entries of all `hydra.searchpath=[...]` among the words, and the other words."""
    entries: list[str] = []
    rest: list[str] = []
    for word in words:
        if is_search_path(word):
            entries += _entries(_value(word), word)
        else:
            rest.append(word)
    return entries, rest


def simple_entries(word: str) -> list[str]:
    """The entries of `hydra.searchpath=[...]`, without Hydra's parser: its import is slow."""
    return ["".join(found) for found in _SIMPLE_ENTRY.findall(word.partition("=")[2])]


def search_path_word(entries: Sequence[str]) -> str:
    return Override.of(KEY, list(entries), group=False).text


def in_root_config(folders: Sequence[Path]) -> list[str]:
    """The search path in a project's own root config; the shipped one has none."""
    for folder in folders[:-1]:
        path = folder / ROOT_FILE
        if path.is_file():
            from kernloom.config.reader import CONFIG, load_yaml

            text = read_text(path, limit=CONFIG.size)
            data = load_yaml(text, where=str(path)) if "searchpath" in text else None
            section = data.get("hydra") if isinstance(data, dict) else None
            listed = section.get("searchpath") if isinstance(section, dict) else None
            return [] if listed is None else _entries(listed, f"{path}: {KEY}")
    return []


def added_folders(entries: Sequence[str], own_folders: Sequence[Path]) -> list[Path]:
    """The folders that entries of a search path name, or else those of the root config."""
    return list(dict.fromkeys(map(search_folder, entries or in_root_config(own_folders))))


def with_search_path(places: Places, entries: Sequence[str] = ()) -> Places:
    """The places of a command that composes no experiment, with the folders of a search path."""
    return replace(places, added_configs=tuple(added_folders(entries, places.folders("configs"))))


def search_folder(entry: str, key: str = KEY) -> Path:
    """The folder that an entry of the search path names. `key`: where the entry was given."""
    entry = _interpolated(entry)
    match = _SCHEME.fullmatch(entry)
    scheme, rest = match.groups() if match else ("file", entry)
    if scheme == "pkg":
        return _package_folder(rest)
    if scheme != "file":
        raise ConfigError(
            f"'{entry}' has the unknown scheme '{scheme}'",
            key=KEY,
            hint="Allowed: a folder, file://FOLDER, pkg://PACKAGE.",
        )
    folder = Path(rest).absolute()
    if not rest or not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise ConfigError(f"'{rest}' {problem}", key=key, hint=_similar(folder))
    return folder


def _value(word: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(word).value()
    except (HydraException, ArithmeticError, ValueError, RecursionError):
        raise UsageError(
            f"'{word}' cannot be read", hint=f"Write {KEY}=[FOLDER,FOLDER]; quote odd names."
        ) from None


def _entries(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise UsageError(
            f"'{where}': a search path is a list of folders", hint=f"Write {KEY}=[FOLDER,FOLDER]."
        )
    return value


def _interpolated(entry: str) -> str:
    """The entry with `${oc.env:NAME}` replaced."""
    if "${" not in entry:
        return entry
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return str(OmegaConf.create({"entry": entry}).entry)
    except OmegaConfBaseException as error:
        raise ConfigError(f"'{entry}': {str(error).splitlines()[0]}", key=KEY) from None


def _package_folder(name: str) -> Path:
    """The folder of an importable package's configs: pkg://my_lab.conf or pkg://my_lab/conf."""
    dotted = name.strip("/").replace("/", ".")
    try:
        spec = find_spec(dotted) if dotted else None
    except (ImportError, ValueError, AttributeError):
        spec = None
    for folder in spec.submodule_search_locations or () if spec else ():
        return Path(folder)
    raise ConfigError(
        f"there is no package '{name}' here",
        key=KEY,
        hint="pkg://PACKAGE is a package that is installed beside Kernloom.",
    )


def _similar(folder: Path) -> str:
    """A hint with the nearest folder beside the missing one."""
    parent = folder.parent
    if not parent.is_dir():
        return f"There is no {parent} either. Paths are relative to the current folder."
    names = [path.name for path in parent.iterdir() if path.is_dir() and path.name[0] != "."]
    known = nearest(folder.name, names).replace("Allowed:", "Folders there:")
    return f"In {parent}: {known}" if names else f"{parent} has no folders."
