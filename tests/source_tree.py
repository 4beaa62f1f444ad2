"""A copy of the source tree, as a newcomer clones it: nothing built, nothing stored."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from command_line import ENGINE, PATIENCE_S, Done, environment
from prefork import Server

TREE = Path(__file__).resolve().parents[1]
PARTS = ("configs", "engine", "native", "recipes", "scenes", "templates")
FILES = ("SConstruct", "kernloom", "pyproject.toml")
PLAIN = re.compile(r"(?:\./)?kernloom(?: +(?:[\w./=,:@+%-]|'[^']*')+)*")
"""A command of ours of which a shell would only remove the quotes."""


@dataclass(frozen=True)
class SourceTree:
    """The copy, and the shell in which its commands are typed."""

    folder: Path
    home: Path

    def type(
        self, line: str, cwd: Path | None = None, patience: float = PATIENCE_S, **env: str
    ) -> Done:
        """A line as a person types it; `kernloom` is a link to the tree's script."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=cwd or self.folder,
            env=environment(self.home, PATH=self._path, **env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def fork(
        self, line: str, cwd: Path | None = None, patience: float = PATIENCE_S, **env: str
    ) -> Done:
        """The same without a shell, a script and a new interpreter, where a line needs none."""
        if PLAIN.fullmatch(line):
            chosen = {"PATH": self._path, "PYTHONPATH": self._packages} | env
            variables = environment(self.home, **chosen)
            words, folder = shlex.split(line)[1:], cwd or self.folder
            request = _forks(self).request(words, folder, variables)
            if request:
                forked = _forks(self).start(request)
                stdout, stderr = forked.communicate(patience)
                return Done(forked.wait(), stdout, stderr)
        return self.type(line, cwd, patience, **env)

    @property
    def _packages(self) -> str:
        """As the script has it."""
        return os.pathsep.join([str(self.folder / "engine"), str(ENGINE)])

    @property
    def _path(self) -> str:
        places = [self.home / ".local/bin", self.folder / ".venv/bin", Path(os.environ["PATH"])]
        return os.pathsep.join(map(str, places))


@cache
def _forks(tree: SourceTree) -> Server:
    return Server(environment(tree.home, PYTHONPATH=tree._packages))


def copy_tree(folder: Path) -> SourceTree:
    """Whatever has been built, stored or cached in the tree of the tests stays behind."""
    tree, home = folder / "kernloom", folder / "home"
    for name in PARTS:
        shutil.copytree(
            TREE / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    for name in FILES:
        shutil.copy(TREE / name, tree / name)
    _add_environment(tree)
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/bin/kernloom").symlink_to(tree / "kernloom")
    return SourceTree(tree, home)


def _add_environment(tree: Path) -> None:
    """A .venv that is installed already: the Python of the tests under another name."""
    python = tree / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    shutil.copy(TREE / "pyproject.toml", tree / ".venv/installed-for.toml")
