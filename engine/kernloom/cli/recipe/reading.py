"""Shows recipes: a page, the differences of two, an appendix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernloom.cli.invocation import Invocation
from kernloom.cli.recipe.common import files_of
from kernloom.recipe.appendix import appendix as appendix_lines
from kernloom.recipe.lock import Lock, to_document
from kernloom.recipe.page import page
from kernloom.recipe.recipe import Recipe, read_recipe
from kernloom.recipe.recipe_difference import Part, compared
from kernloom.report.documents import to_json


def show(invocation: Invocation) -> int:
    """`recipe show FILE`"""
    [file] = files_of(invocation, ["FILE"])
    recipe = read_recipe(Path(file))
    if not invocation.for_people:
        print(to_json(_document(recipe)), file=invocation.data_out)
        return 0
    for line in page(recipe):
        print(line, file=invocation.stdout)
    return 0


def _document(recipe: Recipe) -> dict[str, Any]:
    if recipe.older is not None:
        return dict(recipe.older)
    lock = to_document(recipe.lock) if isinstance(recipe.lock, Lock) else None
    return {"request": dict(recipe.request.written), "lock": lock, "edited": recipe.edited}


def appendix(invocation: Invocation) -> int:
    """`recipe appendix FILE`"""
    [file] = files_of(invocation, ["FILE"])
    lines = list(appendix_lines(read_recipe(Path(file))))
    if not invocation.for_people:
        print(to_json({"appendix": "\n".join(lines)}), file=invocation.data_out)
        return 0
    print("\n".join(lines), file=invocation.data_out)
    return 0


def diff(invocation: Invocation) -> int:
    """`recipe diff A B`"""
    first, second = files_of(invocation, ["A", "B"])
    parts = list(compared(read_recipe(Path(first)), read_recipe(Path(second))))
    if not invocation.for_people:
        document = {part.name: [one.document() for one in part.differences] for part in parts}
        print(to_json(document), file=invocation.data_out)
        return 0
    for line in _lines(parts):
        print(line, file=invocation.stdout)
    return 0


def _lines(parts: list[Part]) -> Iterator[str]:
    for part in parts:
        if part.differences:
            yield f"{part.name}:"
            for difference in part.differences:
                yield f"  {difference.text}"
    if not any(part.differences for part in parts):
        yield "no difference"
