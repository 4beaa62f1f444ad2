"""The config folders of a command line, and the options of groups in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kernloom.base.errors import KernloomError
from kernloom.base.places import Places, find_project, share_folder
from kernloom.cli.hydra_flags import full_name
from kernloom.config.groups import REGISTERED, Groups, composed_cache
from kernloom.config.registered import RegisteredOptions
from kernloom.config.search_path import (
    in_root_config,
    is_search_path,
    search_folder,
    simple_entries,
)


def groups_for(words: Sequence[str], places: Places | None) -> Groups:
    """The options that a command line with these words can choose. Folders that do not exist are
    left out. Options that plugins register are known if a command has cached them."""
    folders = _own_folders(places)
    entries = list(_search_path(words))
    with suppress(KernloomError):
        entries = entries or in_root_config(folders)
    for entry in filter(_is_quick, entries):
        with suppress(KernloomError):
            folders.append(search_folder(entry))
    registered = None
    if places:
        registered = RegisteredOptions(composed_cache(places) / REGISTERED, may_import=False)
    return Groups(folders, registered)


def _search_path(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if is_search_path(word):
            yield from simple_entries(word)
        elif name.startswith("-") and full_name(name) == "config-dir":
            yield value if equals else following


def _is_quick(entry: str) -> bool:
    """Whether an entry needs no import of packages or of OmegaConf."""
    return bool(entry) and not entry.startswith("pkg:") and "${" not in entry


def _own_folders(places: Places | None) -> list[Path]:
    if places:
        return places.folders("configs")
    # The marker of the project is wrong, or the current folder is gone.
    try:
        project = find_project(Path.cwd())
    except OSError:
        project = None
    roots = [root for root in (project, share_folder()) if root]
    return [root / "configs" for root in roots if (root / "configs").is_dir()]
