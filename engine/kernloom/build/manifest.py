"""The manifest beside each artifact: what went in, what came out, and whether that is still so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernloom.build.artifact import ENVIRONMENT, MANIFEST, Artifact
from kernloom.files import sha256_file, sha256_text
from kernloom.sealed import read_sealed, write_sealed


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
        "name": artifact.name,
        "kind": artifact.kind,
        "key": artifact.key,
        "output": artifact.output,
        "output_sha256": digest,
        "main": artifact.main,
        "inputs": artifact.inputs,
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


class Verifier:
    """Whether artifacts on disk are what their manifests say; files are hashed once per process."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, int, int, int], str] = {}

    def problem(self, artifact: Artifact, build: Path) -> str | None:
        """None if the artifact is whole; else what is wrong with it, "" if there is nothing."""
        folder = artifact.folder(build)
        if not folder.is_dir() or not any(folder.iterdir()):
            return ""
        try:
            manifest = read_sealed(folder / MANIFEST)
        except FileNotFoundError:
            return f"{MANIFEST} is missing"
        except (OSError, ValueError) as error:
            return f"{MANIFEST} is damaged: {error}"
        if manifest.get("key") != artifact.key:
            return f"{MANIFEST} is damaged: it is about another artifact"
        try:
            digest = self._hash(folder / artifact.output)
        except FileNotFoundError:
            return f"{artifact.output} is missing"
        except OSError as error:
            return f"{artifact.output} cannot be read: {error.strerror}"
        if digest != manifest.get("output_sha256"):
            return f"{artifact.output} is not the file that was built"
        return self._changed_file(artifact, folder) if artifact.packaged else None

    def _changed_file(self, artifact: Artifact, folder: Path) -> str | None:
        for path, digest in artifact.inputs.items():
            try:
                if self._hash(folder / path) != digest:
                    return f"{path} is not the file that was staged"
            except OSError as error:
                return f"{path} cannot be read: {error.strerror}"
        return None

    def _hash(self, path: Path) -> str:
        status = path.stat()
        stamp = (str(path), status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp not in self._hashes:
            self._hashes[stamp] = sha256_file(path)
        return self._hashes[stamp]
