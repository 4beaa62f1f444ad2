"""Stable paths of programs: build/lib/ARCH/VARIANT/RUNTIME/NAME, links to content-addressed files.

A manifest.json in each folder lists what its links lead to.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernloom.base.files import link_atomically, write_json
from kernloom.build.manifest import read_manifest
from kernloom.plan.artifact import MANIFEST, Artifact


def leads_right(link: Path, path: Path) -> bool:
    """Whether a stable path leads to its program already, and its folder's manifest is there."""
    same = link.exists() and path.exists() and link.samefile(path)
    return same and (link.parent / MANIFEST).exists()


def make_links(artifacts: Iterable[Artifact], build: Path) -> None:
    """Point the stable paths of programs to them, and list them in the manifests of the folders."""
    folders: dict[Path, None] = {}
    for artifact in artifacts:
        link = artifact.link(build)
        if link and not leads_right(link, artifact.path(build)):
            link_atomically(link, artifact.path(build))
            folders[link.parent] = None
    for folder in folders:
        write_folder_manifest(folder)


def write_folder_manifest(folder: Path) -> None:
    """Write the manifest of one folder of stable paths, from the links in it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Two builders may link at once: the last one lists all links.
        fcntl.flock(handle, fcntl.LOCK_EX)
        arch, variant, runtime = folder.parts[-3:]
        links = (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
        files = {path.name: found for path in links if (found := _listed(path)) is not None}
        document = {"arch": arch, "variant": variant, "runtime": runtime, "files": files}
        write_json(folder / MANIFEST, document)
    finally:
        os.close(handle)


def _listed(link: Path) -> dict[str, Any] | None:
    if not link.is_symlink():
        return None
    target = Path(os.path.normpath(link.parent / link.readlink()))
    manifest = read_manifest(target.parent)
    if manifest is None:
        return None
    return {
        "program": manifest["name"],
        "key": manifest["key"],
        "sha256": manifest["output_sha256"],
        "toolchain": manifest["toolchain"]["toolchain"],
        "path": os.path.relpath(target, link.parent),
    }
