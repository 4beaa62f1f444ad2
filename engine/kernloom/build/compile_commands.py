"""compile_commands.json, for editors to understand native/ and the rendered kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from kernloom.base.files import sha256_file, write_json
from kernloom.base.places import Places
from kernloom.base.sealed import read_cache, write_sealed
from kernloom.build.headers import without_linking
from kernloom.plan.artifact import Artifact, steps_of

FILE = "compile_commands.json"
SEAL_FILE = "index/compile_commands.json"
"""Holds the hash of the file itself, since editors reject entries they do not know."""
_SUFFIXES = (".c", ".cpp", ".cc", ".cxx")
_MOST = 10_000


def write_compile_commands(places: Places, artifacts: Iterable[Artifact]) -> None:
    """Add the commands of `artifacts` to the existing ones; the newest come first."""
    path = places.build / FILE
    commands: dict[str, dict[str, Any]] = {}
    before = _existing(path, read_cache(places.build / SEAL_FILE))
    for entry in (*_commands(places, artifacts), *before):
        commands.setdefault(str(Path(entry["directory"], entry["file"])), entry)
    write_json(path, list(commands.values())[:_MOST])
    write_sealed(places.build / SEAL_FILE, {"file": sha256_file(path)})


def _commands(places: Places, artifacts: Iterable[Artifact]) -> Iterator[dict[str, Any]]:
    for artifact in chain.from_iterable(map(steps_of, artifacts)):
        # A runner's sources are edited where they are shipped; a kernel's are generated.
        kernel = artifact.kind == "kernel"
        folder = artifact.folder(places.build)
        if not kernel:
            folder = origin_of(artifact, artifact.main, places.roots) or places.share
        compiled = [path for path in artifact.files if path in artifact.argv]
        sources = [path for path in compiled if path.endswith(_SUFFIXES)]
        known = {*sources, *artifact.steps, "-c"}
        flags = [part for part in without_linking(artifact.argv) if part not in known]
        if not kernel:
            others = [root for root in places.roots if root != folder]
            flags = [flag for given in flags for flag in (given, *_included(given, others))]
        for source in sources:
            yield {
                "directory": str(folder),
                "file": source,
                "arguments": [artifact.tools[artifact.argv[0]], *flags, "-c", source],
            }


def _included(flag: str, roots: Iterable[Path]) -> Iterator[str]:
    """The same include folder in other roots: a build has the headers of all in one place."""
    name = flag.removeprefix("-I")
    if name != flag and not Path(name).is_absolute():
        yield from (f"-I{root / name}" for root in roots if (root / name).is_dir())


def origin_of(artifact: Artifact, name: str, roots: Sequence[Path]) -> Path | None:
    """The root whose file of this name an artifact is made from."""
    for root in roots:
        try:
            if sha256_file(root / name) == artifact.inputs.get(name):
                return root
        except OSError:
            continue
    return None


def _existing(path: Path, sealed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The existing commands; none if the file was changed by others."""
    try:
        if sha256_file(path) != sealed.get("file"):
            return []
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [entry for entry in entries if Path(entry["directory"], entry["file"]).is_file()]
    except (OSError, ValueError, KeyError, TypeError):
        return []
