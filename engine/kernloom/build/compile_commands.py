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
from kernloom.build.native_commands import native_commands, native_state
from kernloom.build.source_texts import is_unit
from kernloom.plan.artifact import COMMANDS, FAILED, Artifact, steps_of

SEAL_FILE = "index/compile_commands.json"
"""Holds the hash of the file itself, since editors reject entries they do not know."""
_SUFFIXES = (".c", ".cpp", ".cc", ".cxx")
_MOST = 10_000


def write_compile_commands(
    places: Places, artifacts: Iterable[Artifact], failed: Iterable[Artifact] = ()
) -> None:
    """Add the commands of `artifacts`, of kernels that did not compile, and of all sources below
    native/ to the existing ones; the newest come first."""
    path = places.build / COMMANDS
    sealed = read_cache(places.build / SEAL_FILE)
    before = _existing(path, sealed)
    state = native_state(places)
    known = before and sealed.get("native") == state
    commands: dict[str, dict[str, Any]] = {}
    for entry in chain(
        _commands(places, artifacts),
        _commands(places, (one for one in failed if one.kind == "kernel"), FAILED),
        () if known else _native(places),
        before,
    ):
        commands.setdefault(str(Path(entry["directory"], entry["file"])), entry)
    write_json(path, list(commands.values())[:_MOST])
    write_sealed(places.build / SEAL_FILE, {"file": sha256_file(path), "native": state})


def _commands(
    places: Places, artifacts: Iterable[Artifact], folder_of: str = ""
) -> Iterator[dict[str, Any]]:
    """The commands of artifacts; `folder_of`: below the build folder, where kernels are if they
    are not in their own places."""
    for artifact in chain.from_iterable(map(steps_of, artifacts)):
        # A runner's sources are edited where they are shipped; a kernel's are generated.
        kernel = artifact.kind == "kernel"
        folder = artifact.folder(places.build)
        if not kernel:
            folder = origin_of(artifact, artifact.main, places.roots) or places.share
        elif folder_of:
            folder = places.build / folder_of / artifact.key
        sources = [path for path in artifact.files if path.endswith(_SUFFIXES)]
        if artifact.kind == "object" and is_unit(artifact.main):
            sources.remove(artifact.main)
        else:
            sources = [path for path in sources if path in artifact.argv]
        if not sources:
            # Linked from objects, or packaged without a command.
            continue
        known = {*sources, artifact.main, *artifact.steps, "-c"}
        flags = [part for part in without_linking(artifact.argv) if part not in known]
        words = [artifact.tools[artifact.argv[0]], *flags]
        if not kernel:
            words = _with_other_roots(words, folder, places.roots)
        for source in sources:
            yield _entry(folder, source, words)


def _native(places: Places) -> Iterator[dict[str, Any]]:
    for root, source, words in native_commands(places):
        yield _entry(root, source, _with_other_roots(words, root, places.roots))


def _entry(folder: Path, source: str, words: Sequence[str]) -> dict[str, Any]:
    return {"directory": str(folder), "file": source, "arguments": [*words, "-c", source]}


def _with_other_roots(words: Sequence[str], own: Path, roots: Sequence[Path]) -> list[str]:
    """A command in its root `own` that also searches the include folders of the other roots: a
    build has the headers of all in one place."""
    others = [root for root in roots if root != own]
    found: list[str] = []
    for word in words:
        found.append(word)
        name = word.removeprefix("-I")
        if name != word and not Path(name).is_absolute():
            found += [f"-I{root / name}" for root in others if (root / name).is_dir()]
    return found


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
