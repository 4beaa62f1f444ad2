"""Manifest of an artifact: its inputs and outputs, and the check that they are intact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernloom.base.files import file_stamp, sha256_file, sha256_text
from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.plan.artifact import ENVIRONMENT, MANIFEST, Artifact


def identify(artifact: Artifact) -> dict[str, Any]:
    """What an artifact is: the start of its manifest, and all of that of a failed build."""
    return {"name": artifact.name, "kind": artifact.kind, "key": artifact.key}


def describe(
    artifact: Artifact,
    *,
    digest: str,
    seconds: float,
    warnings: str,
    because: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest of an artifact that has just been built."""
    return {
        **identify(artifact),
        "output": artifact.output,
        "output_sha256": digest,
        "main": artifact.main,
        "inputs": artifact.inputs,
        "steps": {path: step.key for path, step in artifact.steps.items()},
        "headers": dict(artifact.headers),
        "linked": dict(artifact.linked),
        "argv": list(artifact.argv),
        "environment": dict(ENVIRONMENT),
        "toolchain": asdict(artifact.identity),
        "arch": artifact.arch,
        "variant": artifact.variant,
        "params": artifact.params,
        "origins": {path: sha256_text(text) for path, text in artifact.origins.items()},
        "seconds": round(seconds, 4),
        "warnings": warnings,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "because": dict(because),
    }


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in a folder, or None if it is missing or damaged."""
    try:
        return read_sealed(folder / MANIFEST)
    except (OSError, ValueError):
        return None


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    write_sealed(folder / MANIFEST, dict(sorted(manifest.items())), indent=1)


@dataclass(frozen=True)
class Whole:
    """The artifact on disk matches its manifest."""


@dataclass(frozen=True)
class Missing:
    """The artifact is not on disk."""


@dataclass(frozen=True)
class Damaged:
    """The artifact on disk differs from what was built."""

    reason: str


Condition = Whole | Missing | Damaged


class Verifier:
    """Checks artifacts on disk against their manifests; each file is hashed once per process."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[Path, tuple[int, ...]], str] = {}

    def condition(self, artifact: Artifact, build: Path) -> Condition:
        return self.condition_of(artifact, artifact.folder(build))

    def condition_of(self, artifact: Artifact, folder: Path) -> Condition:
        """The condition of an artifact that is in this folder."""
        if not folder.is_dir() or not any(folder.iterdir()):
            return Missing()
        try:
            manifest = read_sealed(folder / MANIFEST)
        except FileNotFoundError:
            return Damaged(f"{MANIFEST} is missing")
        except (OSError, ValueError) as error:
            return Damaged(f"{MANIFEST} is damaged: {error}")
        if manifest.get("key") != artifact.key:
            return Damaged(f"{MANIFEST} is damaged: it is about another artifact")
        try:
            digest = self._hash(folder / artifact.output)
        except FileNotFoundError:
            return Damaged(f"{artifact.output} is missing")
        except OSError as error:
            return Damaged(f"{artifact.output} cannot be read: {error.strerror}")
        if digest != manifest.get("output_sha256"):
            return Damaged(f"{artifact.output} is not the file that was built")
        return self._staged(artifact, folder) if artifact.packaged else Whole()

    def _staged(self, artifact: Artifact, folder: Path) -> Whole | Damaged:
        """The condition of the files of a package."""
        for path, digest in artifact.inputs.items():
            try:
                if self._hash(folder / path) != digest:
                    return Damaged(f"{path} is not the file that was staged")
            except OSError as error:
                return Damaged(f"{path} cannot be read: {error.strerror}")
        return Whole()

    def _hash(self, path: Path) -> str:
        known_by = (path, tuple(file_stamp(path)))
        if known_by not in self._hashes:
            self._hashes[known_by] = sha256_file(path)
        return self._hashes[known_by]
