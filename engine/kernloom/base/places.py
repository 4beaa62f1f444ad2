"""Folders: the files shipped with Kernloom, the user's project, builds and results.

The same call works in a source tree, an editable install and a wheel. In a wheel the shipped
folders are inside the package (`kernloom/share/`); otherwise they are the top of the source tree.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kernloom
from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.base.files import read_text

PROJECT_FILE = "kernloom.yaml"
_LONGEST_MARKER = 1 << 16


@dataclass(frozen=True)
class Places:
    """The folders of one invocation."""

    share: Path
    """Parent of the shipped configs/, templates/, native/, recipes/, scenes/ and SConstruct."""
    project: Path | None
    """The nearest folder with a kernloom.yaml, if any."""
    build: Path
    store: Path
    added_configs: tuple[Path, ...] = ()
    """Further folders of config files, of lowest priority."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """Parents of configs/ and templates/, highest priority first."""
        return (self.project, self.share) if self.project else (self.share,)

    def folders(self, name: str) -> list[Path]:
        found = [root / name for root in self.roots if (root / name).is_dir()]
        return [*found, *self.added_configs] if name == "configs" else found

    @property
    def calibrations(self) -> Path:
        """Measured peaks, one file per machine class."""
        return self.store.parent / "calibration"

    @property
    def cache(self) -> Path:
        """Derived data that can be deleted at any time."""
        return self.build / "cache"


@cache
def share_folder() -> Path:
    package = Path(kernloom.__file__).resolve().parent
    for candidate in (package / "share", package.parent.parent):
        if (candidate / "SConstruct").is_file() and (candidate / "configs").is_dir():
            return candidate
    raise UnavailableError(
        f"Kernloom's files (configs/, templates/, native/, SConstruct) are not beside {package}",
        hint="Reinstall Kernloom.",
    )


def find_project(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file() and not _holds_root_config(folder):
            return folder
    return None


def _holds_root_config(folder: Path) -> bool:
    """Whether a kernloom.yaml is the root of a configs/ folder, shipped or shadowing."""
    if folder.name != "configs":
        return False
    return folder == share_folder() / "configs" or (folder.parent / PROJECT_FILE).is_file()


def _check_marker(path: Path) -> None:
    """A project's kernloom.yaml only marks the folder: settings in it would be ignored."""
    lines = read_text(path, limit=_LONGEST_MARKER).splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            raise ConfigError(
                "this file marks a project and holds no settings",
                key=f"{path}:{number}",
                hint="Empty it; settings of your own go into files below configs/ beside it.",
            )


def find_places(start: Path | None = None) -> Places:
    """The places for a command started in `start` (default: the current folder)."""
    share = share_folder()
    try:
        here = (start or Path.cwd()).resolve()
    except OSError as error:
        raise UnavailableError(f"the current folder cannot be read: {error.strerror}") from error
    project = find_project(here)
    if project:
        _check_marker(project / PROJECT_FILE)
        home = project / ".kernloom"
        return Places(share, project, home / "build", home / "store.db")
    if share != Path(kernloom.__file__).resolve().parent / "share":
        return Places(share, None, share / "build", share / ".kernloom" / "store.db")
    cache_home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    home = Path(cache_home) / "kernloom"
    return Places(share, None, home / "build", home / "store.db")


def confined(path: str, roots: list[Path], *, key: str, what: str) -> Path:
    """The file `path` in the first of `roots` that has it; never a file outside of them."""
    for root in roots:
        try:
            candidate = (root / path).resolve()
            exists = candidate.is_file()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{what} {path!r} cannot be read: {error}", key=key) from None
        if not candidate.is_relative_to(root.resolve()):
            raise ConfigError(
                f"{what} '{path}' leaves {root}",
                key=key,
                hint=f"Use a path relative to and inside {root}.",
            )
        if exists:
            return candidate
    looked = ", ".join(str(root) for root in roots) or "(no such folder)"
    raise ConfigError(f"{what} '{path}' does not exist", key=key, hint=f"Looked in: {looked}.")
