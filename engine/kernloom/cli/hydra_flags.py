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
QUESTIONS = ("cfg", "resolve", "package", "info", "hydra-help")
"""Flags that print something instead of executing the command."""


def with_config_dir(invocation: Invocation) -> Invocation:
    """The invocation with its `--config-dir` as a part of the search path."""
    folder = invocation.flags.get("config-dir")
    if folder is None:
        return invocation
    from kernloom.config.search_path import search_path_word

    if not folder:
        raise UsageError("--config-dir needs a folder: --config-dir FOLDER")
    word = search_path_word([f"file://{folder}"])
    return replace(invocation, words=(word, *invocation.words))
