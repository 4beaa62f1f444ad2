"""The error of a machine that must not build (build.mode=never) and lacks artifacts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernloom.base.errors import UnavailableError
from kernloom.build.shared_cache import SharedCache
from kernloom.plan.artifact import Artifact

MOST = 20
"""Number of artifacts that the message lists in full."""


def not_built(
    artifacts: Sequence[Artifact], build: Path, shared: SharedCache | None
) -> UnavailableError:
    """Lists every path that was looked at, and the commands that build the artifacts."""
    lines = []
    for artifact in artifacts[:MOST]:
        places = [artifact.path(build)]
        if shared is not None:
            places.append(artifact.path(shared.folder))
        if link := artifact.link(build):
            places.append(link)
        lines.append(f"{artifact.name}: not in {', not in '.join(map(str, places))}")
    if len(artifacts) > MOST:
        lines.append(f"and {len(artifacts) - MOST} more")
    listed = "\n  ".join(lines)
    return UnavailableError(
        f"{len(artifacts)} of the files that this needs are not built, and nothing is built here "
        f"(build.mode=never):\n  {listed}",
        hint=_commands(artifacts, build),
    )


@contextmanager
def compiler_needed(mode: str) -> Iterator[None]:
    """Explain why a compiler that is not available is needed even where nothing is built."""
    try:
        yield
    except UnavailableError as error:
        if mode != "never":
            raise
        raise UnavailableError(
            f"{error.message}\n  Nothing is compiled here (build.mode=never), but a built file is "
            "found by a key that includes the compiler's identity and the headers it reads",
            hint=f"{error.hint} It must be the one that built the files.".strip(),
        ) from None


def _commands(artifacts: Sequence[Artifact], build: Path) -> str:
    links = [link for artifact in artifacts if (link := artifact.link(build))]
    commands = []
    if links:
        names = [os.path.relpath(link, build.parent) for link in dict.fromkeys(links)]
        commands.append(f"scons {shlex.join(names[:MOST])}")
    if any(artifact.kind != "program" for artifact in artifacts):
        commands.append("kernloom build with the same words, without build.mode")
    return f"Where building is allowed: {'; '.join(commands)}."
