"""Builds one artifact: stages its files, runs its command, and lets the result appear whole.

This runs inside SCons, in one thread per job.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernloom.build.artifact import ORIGINS, Artifact
from kernloom.build.explain import Index
from kernloom.build.headers import without_linking
from kernloom.build.manifest import describe, write_manifest
from kernloom.build.toolchains import tool_environment
from kernloom.build.workspace import disk_trouble
from kernloom.files import sha256_file

INTERMEDIATES = {"kernel.i": "-E", "kernel.s": "-S", "kernel.o": "-c"}
_LONGEST_MESSAGE = 20_000


@dataclass(frozen=True)
class Job:
    """One artifact to be made, and why."""

    artifact: Artifact
    because: Mapping[str, Any]
    keep: bool = False
    """Make the intermediates, too."""
    whole: bool = False
    """The artifact itself is already there."""


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    key: str
    ok: bool
    seconds: float = 0.0
    message: str = ""
    """What the compiler said."""
    broken: str = ""
    """What is wrong with the disk or the machine; no other job can do better."""
    cached: bool = False
    """Another process had built it in the meantime."""


def carry_out(job: Job, build: Path, workspace: Path) -> Result:
    """Build one artifact below `build`; every intermediate stays in `workspace`."""
    artifact = job.artifact
    work = workspace / "work" / artifact.key
    try:
        _stage(artifact.files, work)
        if job.whole:
            message = _intermediates(artifact, work, workspace)
            if not message:
                for name in INTERMEDIATES:
                    (work / name).replace(artifact.folder(build) / name)
            return Result(artifact.key, not message, 0.0, message)
        started = time.monotonic()
        if artifact.packaged:
            # What was staged is all there is to it.
            code, message = 0, ""
        else:
            code, message = _run([*artifact.argv], artifact, work, workspace)
        seconds = time.monotonic() - started
        if code == 0 and not (work / artifact.output).is_file():
            code, message = 1, f"{artifact.argv[0]} left no {artifact.output}"
        if code == 0 and job.keep:
            said = _intermediates(artifact, work, workspace)
            code, message = (1, said) if said else (code, message)
        if code != 0:
            trouble = disk_trouble(message)
            if not trouble:
                _exchange(work, build / "failed" / artifact.key, workspace)
            return Result(artifact.key, False, seconds, message, trouble or "")
        _finish(job, build, work, workspace, seconds, message)
        return Result(artifact.key, True, seconds, message)
    except OSError as error:
        return Result(artifact.key, False, broken=error.strerror or str(error))


def _finish(
    job: Job, build: Path, work: Path, workspace: Path, seconds: float, warnings: str
) -> None:
    artifact = job.artifact
    _stage(artifact.origins, work / ORIGINS)
    manifest = describe(
        artifact,
        digest=sha256_file(work / artifact.output),
        seconds=seconds,
        warnings=warnings,
        because=job.because,
    )
    write_manifest(work, manifest)
    _exchange(work, artifact.folder(build), workspace)
    Index(build).append(artifact, manifest["created"])
    failed = build / "failed" / artifact.key
    if failed.exists():
        failed.rename(workspace / f"failed-{artifact.key}")


def _stage(files: Mapping[str, str], folder: Path) -> None:
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _exchange(made: Path, place: Path, workspace: Path) -> None:
    """Put the folder `made` in its place; what was there is thrown away with the workspace."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(workspace / f"old-{place.parent.name}-{place.name}")
    made.rename(place)


def _intermediates(artifact: Artifact, work: Path, workspace: Path) -> str:
    """Preprocessed source, assembly and object of a kernel; a message if that fails."""
    compiled = artifact.kind == "kernel" and not artifact.packaged
    for name, step in INTERMEDIATES.items() if compiled else ():
        argv = [artifact.argv[0], *_compiling(artifact), step, "-o", name]
        code, message = _run(argv, artifact, work, workspace)
        if code != 0:
            return message
    return ""


def _compiling(artifact: Artifact) -> list[str]:
    """The arguments of its command that are about the main source alone."""
    others = {path for path in artifact.files if path.endswith(".c") and path != artifact.main}
    return [part for part in without_linking(artifact.argv) if part not in others]


def _run(argv: list[str], artifact: Artifact, work: Path, workspace: Path) -> tuple[int, str]:
    temporary = workspace / "cc"
    temporary.mkdir(exist_ok=True)
    done = subprocess.run(
        [artifact.tools[argv[0]], *argv[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=work,
        env=tool_environment(temporary),
    )
    message = done.stdout.decode(errors="replace").strip()
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "\n..."
    if done.returncode < 0:
        name = signal.strsignal(-done.returncode)
        message = f"{message}\n{Path(artifact.tools[argv[0]]).name} was ended: {name}"
    return done.returncode, message.strip()
