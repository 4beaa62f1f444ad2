"""Hydra's own flags, for every command that composes experiments."""

from __future__ import annotations

from dataclasses import replace

from kernloom.base.errors import UsageError
from kernloom.cli.invocation import Flag, Invocation

CFG = ("job", "hydra", "all")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
HYDRA_FLAGS = {
    "cfg": Flag("print the composed config and do nothing else", "|".join(CFG)),
    "resolve": Flag("with --cfg: replace interpolations by their values"),
    "package": Flag("with --cfg: print this part only", "KEY"),
    "info": Flag("print how the config was composed", "|".join(INFO), default="all"),
    "hydra-help": Flag("print Hydra's help"),
    "config-dir": Flag("also look for config files in this folder", "FOLDER"),
}
SHORT = {"c": "cfg", "p": "package", "i": "info", "cd": "config-dir"}
"""Hydra's short names of its flags."""
INSTEAD = {
    "run": "A single run is what the command does without -m; leave the flag away.",
    "version": "`kernloom --version` prints Kernloom's version, `kernloom run --info all` Hydra's.",
    "shell-completion": "`kernloom completion SHELL` prints a script for bash, zsh or fish.",
    "config-path": "--config-dir FOLDER adds a folder; a project's configs/ comes before ours.",
    "config-name": "The root config is kernloom.yaml; experiment=NAME chooses a preset.",
    "experimental-rerun": "recipe=FILE records a run; `kernloom recipe run FILE` replays it.",
}
"""Hydra's other flags -> what to use in their place."""
INSTEAD |= {
    "r": INSTEAD["run"],
    "sc": INSTEAD["shell-completion"],
    "cp": INSTEAD["config-path"],
    "cn": INSTEAD["config-name"],
}
QUESTIONS = ("cfg", "resolve", "package", "info", "hydra-help")
"""Flags that print something instead of executing the command."""


def with_config_dir(invocation: Invocation) -> Invocation:
    """The invocation with its `--config-dir` as a part of the search path."""
    folder = invocation.flags.get("config-dir")
    if folder is None:
        return invocation
    from kernloom.config.search_path import search_folder, search_path_word

    if not folder:
        raise UsageError("--config-dir needs a folder: --config-dir FOLDER")
    entry = f"file://{folder}"
    search_folder(entry, "--config-dir")
    word = search_path_word([entry])
    return replace(invocation, words=(word, *invocation.words))
