"""Hydra's own flags, for every command that composes experiments or reads config files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernloom.base.errors import UsageError
from kernloom.base.places import Places, find_places
from kernloom.cli.invocation import Flag, Invocation

CFG = ("job", "hydra", "all")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
CONFIG_FLAGS = {"config-dir": Flag("also look for config files in this folder", "FOLDER")}
"""Flags of commands that read config files without composing an experiment of their words."""
HYDRA_FLAGS = {
    "cfg": Flag("print the composed config and do nothing else", "|".join(CFG)),
    "resolve": Flag("with --cfg: replace interpolations by their values"),
    "package": Flag("with --cfg: print this part only", "KEY"),
    "info": Flag("print how the config was composed", "|".join(INFO), default="all"),
    "hydra-help": Flag("print Hydra's help"),
    **CONFIG_FLAGS,
}
SHORT = {
    "c": "cfg",
    "p": "package",
    "i": "info",
    "cd": "config-dir",
    "cn": "config-name",
    "cp": "config-path",
    "r": "run",
    "sc": "shell-completion",
}
"""Hydra's short names of its flags."""
NOT_SERVED = {
    "config-name": "The root config is always kernloom.yaml. For a set of options and values under "
    "one name write configs/experiment/NAME.yaml, and say experiment=NAME; to change the defaults "
    "put your own kernloom.yaml into the configs/ folder of your project.",
    "config-path": "The config folders are those of your project and of Kernloom. --config-dir "
    "FOLDER adds one; to replace a shipped file put one of the same name into the configs/ folder "
    "of your project.",
    "run": "A command runs one experiment unless it has -m: kernloom run workload=softmax.",
    "version": "`kernloom --version` prints Kernloom's version, `kernloom run --info all` Hydra's.",
    "shell-completion": "Say `kernloom completion bash`, zsh or fish.",
    "experimental-rerun": "Write a recipe by recipe=FILE, and say `kernloom recipe run FILE`.",
}
"""Hydra's flags that Kernloom does not have -> what to use instead."""
QUESTIONS = ("cfg", "resolve", "package", "info", "hydra-help")
"""Flags that print something instead of executing the command."""


def full_name(word: str) -> str:
    """The full name of the flag in a word such as `--config-dir` or `-cd`."""
    name = word.lstrip("-")
    return name if word.startswith("--") else SHORT.get(name, name)


def flags_with_hydra(
    own: Mapping[str, Flag], *, sweeps: bool, reads_configs: bool
) -> dict[str, Flag]:
    """The flags of a command, with those of Hydra's that it takes."""
    return {**own, **(HYDRA_FLAGS if sweeps else CONFIG_FLAGS if reads_configs else {})}


def with_config_dir(invocation: Invocation) -> Invocation:
    """The invocation with its `--config-dir` as a part of the search path."""
    entries = _config_dir(invocation)
    if not entries:
        return invocation
    from kernloom.config.search_path import search_path_word

    return replace(invocation, words=(search_path_word(entries), *invocation.words))


def places_of(invocation: Invocation) -> Places:
    """The places of a command that composes no experiment of its words, with its
    `--config-dir`."""
    from kernloom.config.search_path import with_search_path

    return with_search_path(find_places(), _config_dir(invocation))


def _config_dir(invocation: Invocation) -> list[str]:
    """The entry of the search path that `--config-dir` stands for, if it is given."""
    folder = invocation.flags.get("config-dir")
    if folder == "":
        raise UsageError("--config-dir needs a folder: --config-dir FOLDER")
    if folder is None:
        return []
    from kernloom.config.search_path import search_folder

    entry = f"file://{folder}"
    search_folder(entry, "--config-dir")
    return [entry]
