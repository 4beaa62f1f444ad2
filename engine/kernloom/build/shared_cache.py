"""A folder of built artifacts that several checkouts share, each under its key.

Entries are checked by hash on the way out. A damaged one is removed, and built again by whoever
finds it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kernloom.base.errors import ConfigError
from kernloom.build.manifest import Damaged, Verifier, Whole
from kernloom.build.workspace import workspace
from kernloom.plan.artifact import Artifact

KEY = "build.cache"


@dataclass(frozen=True)
class SharedCache:
    """The folder of `build.cache`, laid out as a build folder."""

    folder: Path

    @classmethod
    def at(cls, text: str, base: Path) -> SharedCache:
        """The cache in a folder, which is created if need be."""
        try:
            folder = (base / Path(text).expanduser()).absolute()
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                f"'{text}' cannot be made: {getattr(error, 'strerror', None) or error}",
                key=KEY,
                hint="Name a folder that can be written to, or leave it out.",
            ) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(
                f"'{folder}' cannot be written to",
                key=KEY,
                hint="Name a folder that can be written to, or leave it out.",
            )
        return cls(folder)

    def may_have(self, artifact: Artifact) -> bool:
        """Whether there is an entry, which may be damaged."""
        return artifact.folder(self.folder).is_dir()

    def fetch(self, artifact: Artifact, build: Path) -> Whole | Damaged | None:
        """Copy an artifact into a build folder; None if it is not here."""
        place = artifact.folder(self.folder)
        if not place.is_dir():
            return None
        try:
            with workspace(build) as folder:
                # Under the same name, which its manifest is sealed with.
                taken = folder / artifact.key
                shutil.copytree(place, taken)
                condition = Verifier().condition_of(artifact, taken)
                if not isinstance(condition, Whole):
                    shutil.rmtree(place, ignore_errors=True)
                    return condition if isinstance(condition, Damaged) else None
                return self._put(artifact, taken, build, folder)
        except (OSError, shutil.Error) as error:
            return Damaged(f"it cannot be copied: {error}")

    def _put(self, artifact: Artifact, taken: Path, build: Path, folder: Path) -> Whole:
        """Move a copy to its place, unless another process was faster."""
        target = artifact.folder(build)
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(Verifier().condition_of(artifact, target), Whole):
            return Whole()
        if target.exists():
            target.rename(folder / "before")
        try:
            taken.rename(target)
        except OSError:
            if not isinstance(Verifier().condition_of(artifact, target), Whole):
                raise
        return Whole()

    def publish(self, artifact: Artifact, build: Path) -> None:
        """Copy an artifact from a build folder, unless it is here. A full disk only costs speed."""
        place = artifact.folder(self.folder)
        if place.exists():
            return
        with contextlib.suppress(OSError, shutil.Error), workspace(self.folder) as folder:
            made = folder / artifact.key
            shutil.copytree(artifact.folder(build), made)
            place.parent.mkdir(parents=True, exist_ok=True)
            made.rename(place)
