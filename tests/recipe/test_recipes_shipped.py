"""The recipes that ship with Kernloom verify, and their exact claims hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from command_line import Project
from kernloom.config.reader import read_yaml
from kernloom.recipe.lock import to_document
from kernloom.recipe.request import new_request
from parts import needs_module, without
from recipes import RecipeBench, lock_of

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_verifies(recipe: Path, shared_project: Project) -> None:
    done = shared_project.json("recipe", "verify", str(recipe))
    if "which this CPU does not have" in done.stderr:
        pytest.skip("this CPU has no AVX2")
    assert done.code in (0, 1), done.stderr
    claims = [Claimed(**one) for one in done.document["claims"]]
    assert claims
    missing = [one["message"] for one in done.trials if one["status"] == "unavailable"]
    if missing:
        without(missing[0])
    assert all(trial["verified"] for trial in done.trials)
    for claim in claims:
        # What others do on this machine meanwhile may fail a claim about times.
        exact = any(name in claim.claim for name in ("instructions", "virtual_ns"))
        other_compiler = claim.reason.startswith("no trial has") and "compiler=" in claim.claim
        assert not exact or claim.verdict == "holds" or other_compiler, claim


@dataclass(frozen=True)
class Claimed:
    """A claim in the document of `recipe verify`."""

    claim: str
    verdict: str
    reason: str
    trials: list[str]


def test_there_are_recipes() -> None:
    assert RECIPES


def test_shipped_and_generated_recipes_are_valid_by_the_schema(bench: RecipeBench) -> None:
    needs_module("jsonschema")
    from jsonschema import Draft202012Validator

    folder = RECIPES[0].parent
    schema = json.loads((folder / "schema/recipe.json").read_text(encoding="utf-8"))
    validator = Draft202012Validator(schema)
    plans = bench.plans("workload=axpy", "case=small", "workload.sizes.N=8,16")
    request = new_request(["workload=axpy", "case=small", "workload.sizes.N=8,16"])
    lock = to_document(lock_of(request, plans))
    path = bench.save("generated.yaml", json.loads(json.dumps({**request.written, "lock": lock})))
    generated = bench.document(path)
    written = bench.document(bench.write("format1.yaml", plans))
    for document in (*map(read_yaml, RECIPES), generated, written):
        assert not [error.context for error in validator.iter_errors(document)]
    assert list(validator.iter_errors({**generated, "lokc": 1}))
