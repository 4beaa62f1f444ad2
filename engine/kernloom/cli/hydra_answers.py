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
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.base.lookup import MISSING
from kernloom.cli.hydra_flags import CFG, INFO, QUESTIONS, with_config_dir
from kernloom.cli.invocation import MULTIRUN, Invocation
from kernloom.config.groups import Groups
from kernloom.config.hydra_compose import PRIMARY, VERSION_BASE, readable_errors
from kernloom.config.hydra_search_path import MAIN, SearchFolder, search_path
from kernloom.config.override_parser import HYDRA, is_literal
from kernloom.config.overrides import Override, spelled
from kernloom.config.resolvers import register_all
from kernloom.config.search_path import KEY as SEARCH_PATH
from kernloom.config.search_path import is_search_path
from kernloom.run.assembly import Assembly


def answer(invocation: Invocation) -> int:
    """Print the answer to the flags of an invocation."""
    flags = invocation.flags
    asked = [name for name in ("cfg", "info", "hydra-help") if name in flags]
    _check(invocation, asked)
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
        is_hydra = word.lstrip("+~").startswith(HYDRA) and not is_search_path(word)
        (others if is_hydra else own).append(word)
    overrides = composer.parse(own, multirun=False)
    composed = composer.check_composes(overrides, resolved="resolve" in invocation.flags)
    path = [word for word in invocation.words if is_search_path(word)]
    words = [_word(o, composed) for o in overrides if o.key != SEARCH_PATH]
    if "hydra-help" in invocation.flags:
        words = []  # Hydra composes its help without the application's config
    return [*words, *path, *others]


def _word(override: Override, composed: Mapping[str, Any]) -> str:
    """An override as Hydra accepts it. Keys that no file has need no `+` in Kernloom, and paths and
    expressions no quotes."""
    if override.group and None in override.values:
        return override.hydra_text(None)
    if override.group or override.kind == "delete":
        return override.text
    node: Any = composed
    for name in override.key.split("."):
        node = node.get(name, MISSING) if isinstance(node, Mapping) else MISSING
    if node is not MISSING and not is_literal(override.key):
        return override.text
    return f"++{override.key}={spelled(override.values[0])}"


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
