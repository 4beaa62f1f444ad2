"""The recipes that ship with Kernloom replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Project

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_verifies(recipe: Path, shared_project: Project) -> None:
    done = shared_project.json("recipe", "run", str(recipe))
    if "which this CPU does not have" in done.stderr:
        pytest.skip("this CPU has no AVX2")
    assert done.code == 0, done.stderr
    assert all(trial["verified"] for trial in done.trials)
    assert "edited" not in done.stderr


def test_there_are_recipes() -> None:
    assert RECIPES
