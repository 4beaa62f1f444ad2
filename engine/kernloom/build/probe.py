"""Probes of tools: compiler identity, files read, flags supported.

A tool that was killed, or ran out of memory or disk, has not answered. That is an error: a missing
answer would give the same compiler another identity, or hide a file from an artifact's key.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernloom.base.errors import UnavailableError
from kernloom.base.temporary import temporary_folder
from kernloom.build.workspace import disk_problem, workspace
from kernloom.plan.artifact import ENVIRONMENT

_PATIENCE_S = 60
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_AGAIN = "Run the command again; if this happens again, look for a lack of memory or disk space."
_FROM_SIGNAL = 128
"""A shell reports a command ended by signal N with exit code 128 + N."""
_KILLED = re.compile(
    r"terminated with signal|signal terminated program|failed due to signal"
    r"|unable to execute command|internal compiler error|virtual memory exhausted|out of memory"
    r"|Cannot allocate memory|[Cc]annot fork|error trying to exec|[Ee]rror executing"
)
"""Messages of compilers and linkers when they, or programs they started, could not work."""

_FROM_OUTSIDE = re.compile(r"was ended: |No such file or directory|cannot find -l")
"""Messages about compilers that were killed, and about files that may be there next time."""


class ProbeError(UnavailableError):
    """A tool that gave no answer: killed, out of memory or disk space."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=_AGAIN)


@dataclass(frozen=True)
class ToolResult:
    """Exit code and output of a tool."""

    code: int
    stdout: str
    stderr: str


def tool_environment(temporary: Path | str) -> dict[str, str]:
    """The complete environment of a compiler; nothing else is inherited."""
    return {
        **ENVIRONMENT,
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": str(temporary),
    }


@contextlib.contextmanager
def scratch(cache: Path) -> Iterator[Path]:
    """A working folder for tools, below `cache`, where later commands remove the folders of killed
    ones; elsewhere only if nothing can be written there."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(workspace(cache))
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise ProbeError(f"cannot write below {cache}: {error.strerror}") from None
            folder = stack.enter_context(temporary_folder())
        yield folder


def query_tool(argv: Sequence[str | Path], folder: Path, *, cwd: Path | None = None) -> str:
    """A tool's output, with temporary files in `folder`; UnavailableError if it fails."""
    answer = tool_output(argv, folder, cwd=cwd)
    if answer.code != 0:
        said = (answer.stderr.strip() or f"exit code {answer.code}").splitlines()[0]
        raise UnavailableError(f"{argv[0]} does not work: {said}")
    if not answer.stdout.strip():
        raise ProbeError(f"{argv[0]} {argv[-1]} printed nothing")
    return answer.stdout.strip()


def tool_output(
    argv: Sequence[str | Path],
    folder: Path,
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> ToolResult:
    """A tool's answer, even if it rejects its input; ProbeError if it could not answer.

    `inherited` are descriptors that the tool keeps open."""
    answer = _run(argv, folder, cwd, environment or {}, inherited)
    if why := _unusable_reason(answer):
        raise ProbeError(f"{argv[0]} does not work: {why}")
    return answer


def is_refusal(message: str) -> bool:
    """Whether the message of a failed build is a compiler's or linker's verdict on its input, which
    it would repeat."""
    unable = _KILLED.search(message) or _FROM_OUTSIDE.search(message) or disk_problem(message)
    return "error:" in message and not unable


def _unusable_reason(answer: ToolResult) -> str:
    """Why an answer is not usable; empty if it is."""
    if answer.code == 0:
        return ""
    if answer.code < 0 or answer.code > _FROM_SIGNAL:
        number = -answer.code if answer.code < 0 else answer.code - _FROM_SIGNAL
        return f"it was ended: {signal.strsignal(number) or f'signal {number}'}"
    if not answer.stderr.strip() and not answer.stdout.strip():
        return f"exit code {answer.code}"
    lines = answer.stderr.strip().splitlines()
    killed = next((line for line in lines if _KILLED.search(line)), "")
    return killed or disk_problem(answer.stderr) or ""


def _run(
    argv: Sequence[str | Path],
    folder: Path,
    cwd: Path | None,
    environment: Mapping[str, str],
    inherited: Sequence[int],
) -> ToolResult:
    import subprocess

    try:
        done = subprocess.run(
            [str(part) for part in argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**tool_environment(folder), **environment},
            cwd=cwd or folder,
            timeout=_PATIENCE_S,
            pass_fds=inherited,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{argv[0]} does not run: {error}") from None
    return ToolResult(done.returncode, done.stdout, done.stderr)
