"""Build of one artifact: stages its files, runs its command, and publishes the result atomically.

This runs inside SCons, in one thread per job.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernloom.base.files import sha256_file, stage
from kernloom.build.explain import Index
from kernloom.build.headers import (
    INSTEAD_OF_ASSEMBLY,
    INSTEAD_OF_MACRO,
    file_by_assembly,
    file_by_macro,
    without_linking,
)
from kernloom.build.limit import CompileLimit, Stopped
from kernloom.build.listing import unchanged
from kernloom.build.manifest import describe, identify, write_manifest
from kernloom.build.probe import tool_environment
from kernloom.build.reads import ASSEMBLING, COMPILING, LINKING, read_log
from kernloom.build.shared_cache import SharedCache
from kernloom.build.workspace import disk_problem, reports_missing_file
from kernloom.plan.artifact import FAILED, ORIGINS, Artifact

INTERMEDIATES = {"kernel.i": "-E", "kernel.s": "-S", "kernel.o": "-c"}
_LONGEST_MESSAGE = 20_000
_ASSEMBLY = "kernloom-assembly.s"
_READS = re.compile(r"\.(?:incbin|include|altmacro|mri)\b", re.IGNORECASE)
"""Directives that read files, or allow macro arguments without a backslash."""
_MACROS = re.compile(r"\.(?:macro|irpc?|rept?)\b.*\.end(?:m|macro|r)\b", re.IGNORECASE | re.DOTALL)
"""From the first assembler macro to the end of the last: a backslash in it may be an argument,
from which any directive can be assembled."""


@dataclass(frozen=True)
class Job:
    """One artifact to build, and the reason."""

    artifact: Artifact
    because: Mapping[str, Any]
    keep: bool = False
    """Make the intermediates as well."""
    whole: bool = False
    """The artifact itself is already present."""


@dataclass(frozen=True)
class Result:
    """Result of a job."""

    key: str
    ok: bool
    seconds: float = 0.0
    message: str = ""
    """The compiler's output."""
    broken: str = ""
    """A problem of the disk or the machine that would affect every other job."""
    deleted: bool = False
    """Files of the build folder disappeared: a retry may succeed."""
    cached: bool = False
    """Another process has built it in the meantime."""
    outdated: str = ""
    """A file that was read or has changed although the key says otherwise."""
    source: str = ""
    """The source that does not compile, below the folder of failed builds."""
    stopped: bool = False
    """The compiler took too long; the message says how long."""


def execute(
    job: Job,
    build: Path,
    workspace: Path,
    shared: SharedCache | None = None,
    limit: CompileLimit | None = None,
) -> Result:
    """Build one artifact below `build`; every intermediate stays in `workspace`. `limit` is that of
    kernels."""
    artifact = job.artifact
    limit = limit if artifact.kind == "kernel" else None
    work = workspace / "work" / artifact.key
    try:
        stage(artifact.files, work)
        _stage_steps(artifact, build, work)
        if job.whole:
            message = _intermediates(artifact, work, workspace)
            if not message:
                for name in INTERMEDIATES:
                    (work / name).replace(artifact.folder(build) / name)
            return Result(artifact.key, not message, 0.0, message)
        started = time.monotonic()
        if artifact.packaged:
            # A package consists of the staged files alone.
            code, message, outdated = 0, "", ""
        else:
            try:
                code, message, outdated = _compile(artifact, work, workspace, limit)
            except Stopped as stopped:
                return _failed(artifact, build, workspace, str(stopped), stopped=True)
        seconds = time.monotonic() - started
        for path in artifact.steps:
            (work / path).unlink(missing_ok=True)
        if outdated:
            # Failed or not, the result is for other files than those in the key.
            work.rename(workspace / f"outdated-{artifact.key}")
            return Result(artifact.key, False, seconds, outdated=outdated)
        if code != 0 or not (work / artifact.output).is_file():
            _check_deleted(artifact, work, workspace, message)
        if code == 0 and not (work / artifact.output).is_file():
            code, message = 1, f"{artifact.argv[0]} left no {artifact.output}"
        if code == 0 and job.keep:
            said = _intermediates(artifact, work, workspace)
            code, message = (1, said) if said else (code, message)
        if code != 0:
            trouble = disk_problem(message)
            if trouble:
                return Result(artifact.key, False, seconds, message, trouble)
            return replace(_failed(artifact, build, workspace, message), seconds=seconds)
        if limit:
            limit.seen(seconds)
        _finish(job, build, work, workspace, seconds, message)
        if shared:
            shared.publish(artifact, build)
        return Result(artifact.key, True, seconds, message)
    except OSError as error:
        deleted = error.errno == errno.ENOENT
        return Result(artifact.key, False, broken=error.strerror or str(error), deleted=deleted)


def _failed(
    artifact: Artifact, build: Path, workspace: Path, message: str, *, stopped: bool = False
) -> Result:
    """Keep the source of a failed compilation."""
    work = workspace / "work" / artifact.key
    # So that `scons -c` knows its own.
    write_manifest(work, identify(artifact))
    _exchange(work, build / FAILED / artifact.key, workspace)
    source = f"{artifact.key}/{artifact.main}"
    return Result(artifact.key, False, message=message, source=source, stopped=stopped)


def _check_deleted(artifact: Artifact, work: Path, workspace: Path, message: str) -> None:
    """Raise FileNotFoundError if a command failed because its folder was deleted."""
    staged = all((work / path).is_file() for path in artifact.files)
    if not staged or reports_missing_file(message, workspace):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(work))


def _finish(
    job: Job, build: Path, work: Path, workspace: Path, seconds: float, warnings: str
) -> None:
    artifact = job.artifact
    stage(artifact.origins, work / ORIGINS)
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
    failed = build / FAILED / artifact.key
    if failed.exists():
        failed.rename(workspace / f"failed-{artifact.key}")


def _stage_steps(artifact: Artifact, build: Path, work: Path) -> None:
    """Put the outputs that a command needs where it expects them."""
    for path, step in artifact.steps.items():
        target = work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(step.path(build))
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            shutil.copyfile(step.path(build), target)


def _exchange(made: Path, place: Path, workspace: Path) -> None:
    """Move the folder `made` to its place; an old one goes to the workspace to be deleted."""
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
    """The arguments of its command for compiling the main source alone."""
    others = {path for path in artifact.files if path.endswith(".c") and path != artifact.main}
    others |= artifact.steps.keys()
    return [part for part in without_linking(artifact.argv) if part not in others]


def _compile(
    artifact: Artifact, work: Path, workspace: Path, limit: CompileLimit | None
) -> tuple[int, str, str]:
    """Run an artifact's command: exit code, message, and a file that differs from the key."""
    with read_log(work) as log:
        argv = [*artifact.argv, *(COMPILING if artifact.compiles else ())]
        argv += LINKING if artifact.links else ()
        argv += ASSEMBLING if artifact.lists_assembly and artifact.compiles else ()
        code, message = _run(argv, artifact, work, workspace, log.inherited, limit)
        read = log.files()
        assembled = log.assembled() if log.listed_assembly else None
        if code == 0 and not log.intact:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(work))
    if not artifact.stamps:
        # Without stamps there is nothing to compare the read files with.
        read, assembled = [], None
    changed = (path for path, stamp in artifact.stamps.items() if not unchanged(path, stamp))
    # A failed command has no output that could be wrong.
    made = read if code == 0 else []
    known = _Known(artifact, workspace)
    unknown = (path for path in made if path not in known)
    outdated = next(changed, "") or next(unknown, "")
    refused = ""
    if code == 0 and not outdated:
        refused = _assembly(artifact, work, workspace, known, assembled)
    return (1, refused, "") if refused else (code, message, outdated)


class _Known:
    """The files that a command may read: staged, temporary, or in the key."""

    def __init__(self, artifact: Artifact, workspace: Path) -> None:
        self._stamps = artifact.stamps
        self._folders: dict[str, str] = {}
        """Folder -> the same without symbolic links; most files are in a few folders."""
        self._inside = f"{os.path.realpath(workspace)}{os.sep}"

    def __contains__(self, path: str) -> bool:
        if path in self._stamps:
            return True
        real = self._real(path)
        return real.startswith(self._inside) or any(self._real(p) == real for p in self._stamps)

    def _real(self, path: str) -> str:
        """`os.path.realpath`, which would look at each part of the path every time."""
        folder, name = os.path.split(path)
        if name in ("", os.curdir, os.pardir) or os.path.islink(path):  # noqa: PTH114 (many calls)
            return os.path.realpath(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return f"{self._folders[folder]}{os.sep}{name}"


def _assembly(
    artifact: Artifact,
    work: Path,
    workspace: Path,
    known: _Known,
    assembled: Sequence[str] | None,
) -> str:
    """Why the inline assembly of an artifact is refused: it reads files that are not in the key.

    `assembled` are the files that the assembler listed; None if it cannot list them.
    """
    if assembled is None:
        return _searched_assembly(artifact, work, workspace) if artifact.assembles else ""
    path = next((path for path in assembled if path not in known), "")
    if not path:
        return ""
    return f"{file_by_assembly(artifact.main, f'assembly ({path})')}\n{INSTEAD_OF_ASSEMBLY}"


def _searched_assembly(artifact: Artifact, work: Path, workspace: Path) -> str:
    """The same by searching the compiler's assembly output, where split strings are joined."""
    argv = [artifact.argv[0], *_compiling(artifact), "-fno-lto", "-S", "-o", _ASSEMBLY]
    # Clang, unlike GCC, needs this flag to keep inline assembly as written.
    code, _ = _run([*argv, "-fno-integrated-as"], artifact, work, workspace)
    if code != 0:
        code, message = _run(argv, artifact, work, workspace)
        if code != 0:
            return message
    text = (work / _ASSEMBLY).read_text(encoding="utf-8", errors="replace")
    (work / _ASSEMBLY).unlink()
    if found := _READS.search(text):
        return f"{file_by_assembly(artifact.main, found[0])}\n{INSTEAD_OF_ASSEMBLY}"
    macros = _MACROS.search(text)
    if macros and "\\" in macros[0]:
        return f"{file_by_macro(artifact.main)}\n{INSTEAD_OF_MACRO}"
    return ""


def _run(
    argv: list[str],
    artifact: Artifact,
    work: Path,
    workspace: Path,
    inherited: Sequence[int] = (),
    limit: CompileLimit | None = None,
) -> tuple[int, str]:
    temporary = workspace / "cc"
    temporary.mkdir(exist_ok=True)
    try:
        with subprocess.Popen(
            [artifact.tools[argv[0]], *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=tool_environment(temporary),
            pass_fds=inherited,
        ) as process:
            output = limit.wait(process) if limit else process.communicate()[0]
    except FileNotFoundError:
        if not work.is_dir():
            raise
        return 1, f"{artifact.tools[argv[0]]} cannot be started: it is gone, or its interpreter"
    message = output.decode(errors="replace").strip()
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "\n..."
    if process.returncode < 0:
        name = signal.strsignal(-process.returncode)
        message = f"{message}\n{Path(artifact.tools[argv[0]]).name} was ended: {name}"
    return process.returncode, message.strip()
