"""A folder of built artifacts that several checkouts share, each under its key.

Entries are checked by hash on the way out. A damaged one is removed, and built again by whoever
finds it. Only the built file and its manifest are taken from an entry, as plain files with usual
permissions: the rest is known here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kernloom.base.errors import ConfigError
from kernloom.base.files import stage
from kernloom.base.sealed import read_sealed
from kernloom.build.explain import FETCHED, Explanation, to_plain
from kernloom.build.manifest import Condition, Damaged, Verifier, Whole, write_manifest
from kernloom.build.workspace import workspace
from kernloom.plan.artifact import MANIFEST, ORIGINS, Artifact

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
        if not self.may_have(artifact):
            return None
        try:
            with workspace(build) as folder:
                # Under the same name, which its manifest is sealed with.
                taken = folder / artifact.key
                condition = self._take(artifact, place, taken)
                if isinstance(condition, Whole):
                    _note_origin(taken)
                    return self._put(artifact, taken, build, folder)
                shutil.rmtree(place, ignore_errors=True)
                return condition if isinstance(condition, Damaged) else None
        except OSError as error:
            return Damaged(f"it cannot be copied: {error}")

    def _take(self, artifact: Artifact, place: Path, taken: Path) -> Condition:
        """Copy an entry; its condition is that of the copy."""
        taken.mkdir()
        stage(artifact.files, taken)
        stage(artifact.origins, taken / ORIGINS)
        for name in (MANIFEST, artifact.output):
            if name in artifact.files:
                continue
            try:
                _copy_plain(place / name, taken / name)
            except FileNotFoundError:
                return Damaged(f"{name} is missing")
            except _NotPlainError:
                return Damaged(f"{name} is no plain file")
        if artifact.links and not artifact.packaged:
            (taken / artifact.output).chmod(0o755)
        return Verifier().condition_of(artifact, taken)

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
        if place.is_dir():
            return
        with contextlib.suppress(OSError, shutil.Error), workspace(self.folder) as folder:
            made = folder / artifact.key
            shutil.copytree(artifact.folder(build), made)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            made.rename(place)


class _NotPlainError(Exception):
    """A link, pipe or folder where a file should be."""


def _copy_plain(source: Path, target: Path) -> None:
    """Copy the bytes of a plain file: no link is followed, no pipe waited for, no mode kept."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _NotPlainError from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _NotPlainError
        with os.fdopen(handle, "rb", closefd=False) as data, target.open("wb") as copy:
            shutil.copyfileobj(data, copy)
    finally:
        os.close(handle)


def _note_origin(folder: Path) -> None:
    """Have the manifest of a copy say that it was fetched, not why others built it."""
    manifest = read_sealed(folder / MANIFEST)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    why = Explanation(FETCHED, f"fetched from the shared cache ({KEY}) {now}")
    write_manifest(folder, {**manifest, "because": to_plain(why)})
