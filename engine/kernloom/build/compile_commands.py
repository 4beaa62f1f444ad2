"""compile_commands.json, by which editors understand native/ and the rendered kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernloom.build.artifact import Artifact
from kernloom.build.headers import without_linking
from kernloom.files import write_json
from kernloom.places import Places

FILE = "compile_commands.json"
_MOST = 500


def write_compile_commands(places: Places, artifacts: Iterable[Artifact]) -> None:
    """Add the commands of `artifacts` to those already there; the newest come first."""
    path = places.build / FILE
    commands: dict[str, dict[str, Any]] = {}
    for entry in (*_commands(places, artifacts), *_existing(path)):
        commands.setdefault(str(Path(entry["directory"], entry["file"])), entry)
    write_json(path, list(commands.values())[:_MOST])


def _commands(places: Places, artifacts: Iterable[Artifact]) -> Iterator[dict[str, Any]]:
    for artifact in artifacts:
        # A runner's sources are edited where they are shipped; a kernel's are only rendered.
        kernel = artifact.kind == "kernel"
        folder = artifact.folder(places.build) if kernel else places.share
        sources = [path for path in artifact.files if path in artifact.argv]
        flags = [part for part in without_linking(artifact.argv) if part not in sources]
        for source in sources:
            yield {
                "directory": str(folder),
                "file": source,
                "arguments": [artifact.tools[artifact.argv[0]], *flags, "-c", source],
            }


def _existing(path: Path) -> list[dict[str, Any]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [entry for entry in entries if Path(entry["directory"], entry["file"]).is_file()]
    except (OSError, ValueError, KeyError, TypeError):
        return []
