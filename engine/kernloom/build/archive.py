"""The archiver of a toolchain, which makes static libraries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import UnavailableError
from kernloom.base.files import sha256_json
from kernloom.build.listing import Listing, OutsideFiles, outside_files
from kernloom.build.probe import scratch
from kernloom.build.toolchains import DRIVER, Detected, find_program, shared_libraries
from kernloom.plan.artifact import ARCHIVER

ARCHIVING = "qcsD"
"""Append, since members may have equal names; with an index, and without times and owners."""


def archiver(detected: Detected, flags: Sequence[str]) -> tuple[Path, OutsideFiles]:
    """The archiver that belongs to a compiler, and its files for a key."""
    if ARCHIVER not in detected.known:
        driver = detected.tools[DRIVER]
        target = [flag for flag in flags if flag.startswith("--target=")]
        code = code_stamp("build/archive", "build/listing", "build/toolchains")
        asked = [str(driver), target, detected.digest, os.get_exec_path(), code]
        record = detected.cache / "linked" / f"{sha256_json(asked)}.json"
        lasting = not detected.opaque and all(map(os.path.isabs, os.get_exec_path()))
        found = outside_files(
            record if lasting else None, lambda: _listing([driver, *target], detected)
        )
        # The archiver itself is listed first.
        detected.known[ARCHIVER] = (Path(next(iter(found.stamps))), found)
    known: tuple[Path, OutsideFiles] = detected.known[ARCHIVER]
    return known


def _listing(driver: Sequence[str | Path], detected: Detected) -> Listing:
    with scratch(detected.cache) as folder:
        path = find_program(driver, ARCHIVER, folder)
        if path is None:
            raise UnavailableError(
                f"toolchain '{detected.toolchain}': {driver[0]} finds no program '{ARCHIVER}'",
                hint="It is part of binutils.",
            )
        libraries = shared_libraries(path, folder)
    files = {str(path): ARCHIVER} | {str(path): name for name, path in libraries.items()}
    places = {*os.get_exec_path(), str(Path(driver[0]).parent), str(path.parent)}
    return Listing(files, sorted(places))
