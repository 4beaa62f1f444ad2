"""Answers to Hydra's flags (--cfg, --info, --hydra-help), by a `hydra.main` application on the same
config folders. Overrides are checked by Kernloom first, so that mistakes are reported as ever.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.cli.hydra_flags import CFG, INFO, QUESTIONS, with_config_dir
from kernloom.cli.invocation import MULTIRUN, Invocation
from kernloom.config.groups import Groups
from kernloom.config.hydra_compose import PRIMARY, VERSION_BASE, readable_errors
from kernloom.config.hydra_search_path import MAIN, SearchFolder, search_path
from kernloom.config.override_parser import HYDRA
from kernloom.config.overrides import Overrides, spelled
from kernloom.config.resolvers import register_all
from kernloom.config.search_path import KEY as SEARCH_PATH
from kernloom.run.assembly import Assembly


def answer(invocation: Invocation) -> int:
    """Print the answer to the flags of an invocation."""
    flags = invocation.flags
    asked = [name for name in ("cfg", "info", "hydra-help") if name in flags]
    _check(invocation, asked)
    # Hydra itself composes its help from no config, so overrides do not matter.
    assembly = Assembly()
    words = _checked_words(invocation, assembly)
    arguments = [f"--config-dir={flags['config-dir']}"] if "config-dir" in flags else []
    app = _App(assembly.places.folders("configs"), [*arguments, *words])
    if "cfg" in flags:
        text = app.config(flags["cfg"], flags.get("package"), resolve="resolve" in flags)
    else:
        text = app.run([f"--info={flags['info']}"] if "info" in flags else ["--hydra-help"])
    if invocation.for_people:
        invocation.stdout.write(text)
    else:
        document = yaml.safe_load(text) if "cfg" in flags else {"text": text}
        print(json.dumps(document), file=invocation.stdout)
    return 0


def _check(invocation: Invocation, asked: Sequence[str]) -> None:
    flags = invocation.flags
    for name, allowed in (("cfg", CFG), ("info", INFO)):
        if name in flags and flags[name] not in allowed:
            hint = nearest(flags[name], allowed)
            raise UsageError(f"--{name} has no '{flags[name]}'", hint=hint)
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} are two questions", hint="Ask one.")
    if not asked or (asked != ["cfg"] and {"resolve", "package"} & flags.keys()):
        name = next(name for name in QUESTIONS if name in flags and name not in asked)
        raise UsageError(f"--{name} belongs to --cfg", hint=f"For instance: --cfg job --{name}.")
    if invocation.multirun:
        raise UsageError(
            f"--{asked[0]} is about one experiment, and {MULTIRUN[0]} is a sweep",
            hint="Leave -m away, and give every key one value.",
        )


def _checked_words(invocation: Invocation, assembly: Assembly) -> list[str]:
    """The overrides in Hydra's syntax, once Kernloom has composed them without an error."""
    composer = assembly.composer
    own: list[str] = []
    others: list[str] = []
    for word in with_config_dir(invocation).words:
        mine = word.lstrip("+~").startswith(HYDRA) and not word.startswith(SEARCH_PATH)
        (others if mine else own).append(word)
    overrides = composer.parse(own, multirun=False)
    # A preset may describe a sweep: its first point shows whether it can be composed.
    next(composer.points(replace(overrides, multirun=True)), None)
    path = [word for word in invocation.words if word.startswith(SEARCH_PATH)]
    return [*words_for_hydra(overrides), *path, *others]


def words_for_hydra(overrides: Overrides) -> list[str]:
    """The overrides of one experiment as Hydra accepts them. Keys of open maps need no `+` here, so
    every value is forced; quotes protect values that Kernloom takes literally."""
    words = []
    for override in overrides:
        value = override.values[0] if override.values else None
        if override.key == SEARCH_PATH:
            continue
        if override.group:
            words.append(override.hydra_text(value))
        elif override.kind == "delete":
            words.append(override.text)
        else:
            words.append(f"++{override.key}={spelled(value)}")
    return words


class _App:
    """A Hydra application on Kernloom's config folders."""

    def __init__(self, folders: Sequence[Any], words: Sequence[str]) -> None:
        self._folders = [
            SearchFolder(folder, MAIN if number == 0 else PRIMARY)
            for number, folder in enumerate(folders)
        ]
        self._words = list(words)
        self._groups = Groups(folders)

    def config(self, kind: str, package: str | None, *, resolve: bool) -> str:
        chosen = [] if package is None else [f"--package={package}"]
        arguments = [f"--cfg={kind}", *chosen, *(["--resolve"] if resolve else [])]
        if package is not None:
            self._check_package(kind, package)
        return self.run(arguments)

    def _check_package(self, kind: str, package: str) -> None:
        """Refuse a key that the config does not have; Hydra names no others."""
        if package == "_global_":
            return
        node = yaml.safe_load(self.run([f"--cfg={kind}"]))
        above: list[str] = []
        for name in package.split("."):
            known = [*node] if isinstance(node, Mapping) else []
            if isinstance(node, list) and name.isdigit() and int(name) < len(node):
                node = node[int(name)]
            elif name in known:
                node = node[name]
            else:
                where = f"'{'.'.join(above)}'" if above else f"the {kind} config"
                raise UsageError(
                    f"--package {package}: {where} has no key '{name}'",
                    hint=nearest(name, map(str, known)) if known else "It has no keys.",
                )
            above.append(name)
        if node is None:
            raise UsageError(
                f"--package {package}: it is null, so there is nothing to print",
                hint=f"Leave --package away to see all of --cfg {kind}.",
            )

    def run(self, arguments: Sequence[str]) -> str:
        """What the application prints for these arguments."""
        task.__module__ = PRIMARY  # the name of the job
        app = hydra.main(
            version_base=VERSION_BASE, config_path=str(self._folders[0].path), config_name=PRIMARY
        )(task)
        output, problems = io.StringIO(), io.StringIO()
        register_all()
        with (
            search_path(self._folders),
            _as_program([PRIMARY, *arguments, *self._words]),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(problems),
            readable_errors(PRIMARY, self._groups),
        ):
            try:
                app()
            except SystemExit as end:
                if end.code:
                    text = problems.getvalue().strip() or f"Hydra ended with {end.code}"
                    raise ConfigError(text.splitlines()[-1]) from None
        return output.getvalue()


def task(config: DictConfig) -> None:
    """The application never runs: every flag above only prints."""


@contextlib.contextmanager
def _as_program(words: Sequence[str]) -> Iterator[None]:
    """This process as the program that Hydra reads its arguments from. Hydra must raise its errors
    instead of printing them."""
    arguments, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = list(words), "1"
    try:
        yield
    finally:
        sys.argv = arguments
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full
        HydraConfig.instance().cfg = None
