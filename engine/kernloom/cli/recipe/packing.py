"""Packs a recipe with its sources, and unpacks such an archive."""

from __future__ import annotations

from pathlib import Path

from kernloom.base.errors import UsageError
from kernloom.base.units import count
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.invocation import Invocation, destination, without_output
from kernloom.cli.recipe.common import files_of
from kernloom.recipe.archive import RECIPE_FILE, packed, read_archive, write_archive
from kernloom.recipe.archive import unpack as write_files
from kernloom.recipe.page import page
from kernloom.recipe.recipe import read_recipe
from kernloom.report.documents import to_json

SHOWN = 40


def pack(invocation: Invocation) -> int:
    """`recipe pack FILE ARCHIVE`"""
    file, archive = files_of(invocation, ["FILE", "ARCHIVE.tar.gz"])
    if not archive.endswith((".tar.gz", ".tgz")):
        raise UsageError(f"'{archive}' does not end in .tar.gz")
    target = destination(archive, "ARCHIVE")
    made, notes = packed(read_recipe(Path(file)), places_of(invocation).roots)
    write_archive(made, target)
    for note in notes:
        print(f"note: {note}", file=invocation.stderr)
    if not invocation.for_people:
        print(to_json({"archive": archive, "files": list(made.files)}), file=invocation.data_out)
        return 0
    size = target.stat().st_size / 1000
    print(f"{archive}: {count(len(made.files), 'file')}, {size:.0f} kB", file=invocation.stdout)
    return 0


def unpack(invocation: Invocation) -> int:
    """`recipe unpack ARCHIVE [FOLDER] [--trust]`"""
    given = list(without_output(invocation.words))[1:]
    if not 1 <= len(given) <= 2:
        raise UsageError("say: kernloom recipe unpack ARCHIVE [FOLDER]")
    archive, out = given[0], invocation.stdout
    found = read_archive(Path(archive))
    own = found.own_sources(places_of(invocation).roots)
    if not invocation.for_people:
        document = {"files": list(found.files), "own_sources": own}
        print(to_json(document), file=invocation.data_out)
    else:
        print(f"{archive}: {count(len(found.files), 'file')}", file=out)
        if own:
            print(
                "Files that this machine does not have; sources would be compiled and run:",
                file=out,
            )
        for name in own[:SHOWN]:
            print(f"  {name}", file=out)
        if len(own) > SHOWN:
            print(f"  and {len(own) - SHOWN} more", file=out)
    if len(given) == 1:
        return 0
    if own and "trust" not in invocation.flags:
        raise UsageError(
            f"{archive} has {count(len(own), 'file')} of its own, which would be compiled and run "
            "with your rights",
            hint="Look at them (tar xzf), then say it again with --trust.",
        )
    folder = Path(given[1])
    recipe = write_files(found, folder)
    if invocation.for_people:
        print("", file=out)
        for line in page(recipe):
            print(line, file=out)
        print(f"\nNow: cd {folder} && kernloom recipe verify {RECIPE_FILE}", file=out)
    return 0
