"""A request is read key by key; what a stranger must not say is refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernloom.base.errors import KernloomError
from kernloom.recipe.recipe import read_recipe
from recipes import RecipeBench

RUN = "workload=axpy case=small"


def points(bench: RecipeBench, **keys: Any) -> list[Any]:
    path = bench.save("request.yaml", {"recipe": 2, "run": RUN, **keys})
    return bench.read(path)


def refused(bench: RecipeBench, **keys: Any) -> str:
    with pytest.raises(KernloomError) as error:
        points(bench, **keys)
    return str(error.value)


def test_five_lines_are_a_recipe(bench: RecipeBench) -> None:
    (entry,) = points(bench, about="it works", claims=["instructions <= 1"], peers=["numpy"])
    assert entry.point.data["workload"]["name"] == "axpy"
    assert entry.point.data["measure"]["peers"] == ["numpy"]
    assert entry.point.data["case"] == "small"


SWEEPS: dict[str, Any] = {
    "axes": {"axes": {"workload.sizes.N": [8, 16, 32]}},
    "a constraint": {"axes": {"workload.sizes.N": [8, 16, 32, 64]}, "where": "N < 64"},
    "named points": {"points": {f"p{n}": {"workload.sizes.N": n} for n in (1, 2, 3)}},
    "a zip": {"zip": {"workload.sizes.N": [1, 2, 3], "seed": [4, 5, 6]}},
    "a sample": {"axes": {"workload.sizes.N": {"from": 1, "to": 99}}, "sample": {"count": 3}},
}


@pytest.mark.parametrize("what", SWEEPS)
def test_a_request_can_sweep(bench: RecipeBench, what: str) -> None:
    assert len(points(bench, sweep=SWEEPS[what])) == 3


def test_words_are_a_text_or_a_list(bench: RecipeBench) -> None:
    assert len(points(bench, run="workload=axpy,sum case=small")) == 2
    assert len(points(bench, run=["workload=axpy", "seed=1,2,3"])) == 3


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"claim": []}, "Did you mean 'claims'"),
    "a flag": ({"run": "-m workload=axpy"}, "leave -m out"),
    "another flag": ({"run": "--config-dir /tmp"}, "'--config-dir' is not key=value"),
    "an open quote": ({"run": "workload='axpy"}, "a quote that is not closed"),
    "no words": ({"run": {"workload": "axpy"}}, "expected overrides"),
    "an unknown workload": ({"run": "workload=axpi"}, "Did you mean 'axpy'"),
    "a percentage": ({"variation": 10}, "10 is no percentage"),
    "a claim": ({"claims": "median_ns < 5"}, "expected a list"),
    "a sweep of nothing": ({"sweep": {"axis": {}}}, "Did you mean 'axes'"),
    "a sweep that is not there": ({"sweep": "../../etc/passwd"}, "unknown sweep"),
    "too many points": ({"run": "seed=range(0,1000000)"}, "more than 200,000"),
    "a store": ({"run": "store.path=/tmp/x.db"}, "belongs to whoever runs the recipe"),
    "a fleet": ({"run": "fleet=slurm"}, "belongs to whoever runs the recipe"),
    "a trace": ({"run": "trace=/tmp/x"}, "belongs to whoever runs the recipe"),
    "a recipe": ({"run": "recipe=/tmp/x"}, "belongs to whoever runs the recipe"),
    "a build cache": ({"run": "+build.cache=/tmp"}, "belongs to whoever runs the recipe"),
    "a search path": ({"run": "hydra.searchpath=[/tmp]"}, "a setting of Hydra's own"),
    "a launcher": ({"run": "hydra/launcher=joblib"}, "a setting of Hydra's own"),
    "a package": ({"run": "toolchain@target=gcc"}, "a setting of Hydra's own"),
    "the environment": ({"run": "workload.about=${oc.env:HOME}"}, "does more than name a key"),
    "it in a sweep": (
        {"sweep": {"axes": {"workload.about": ["${oc.env:HOME}"]}}},
        "does more than name a key",
    ),
    "it nested": ({"run": "workload.about=${${seed}}"}, "does more than name a key"),
    "another compiler": ({"run": "toolchain.tools.cc=/tmp/x"}, "toolchain.tools: differs"),
    "a plug-in": (
        {"run": ["toolchain.extra_flags=['-fplugin=/tmp/x.so']"]},
        "cannot use the flag",
    ),
    "another device": ({"run": "target.device=mine"}, "target.device: differs"),
    "a file of parameters": ({"run": "select.file=/etc/passwd"}, "a file of parameters"),
    "a path outside": (
        {"run": "workload.tensors.A.fill={kind:file,path:../../x.npy}"},
        "is no relative path",
    ),
    "a proxy": ({"proxy": 5}, "expected overrides"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_a_request_cannot_say_is_explained(bench: RecipeBench, what: str) -> None:
    keys, says = BAD[what]
    assert says in refused(bench, **keys)


def test_an_emulators_program_is_this_machines(bench: RecipeBench) -> None:
    words = "workload=axpy case=small target=host_counted target.emulator.program=/tmp/x"
    (entry,) = points(bench, run=words)
    assert entry.point.data["target"]["emulator"]["program"] != "/tmp/x"
    assert any("this machine's is used" in note for note in entry.notes)


NO_RECIPES = {
    "": "is not a recipe",
    "[]": "is not a recipe",
    "trials: []": "is not a recipe",
    "recipe: 3": "reads 1 and 2",
    "recipe: true": "reads 1 and 2",
    "recipe: 2.0": "reads 1 and 2",
    "recipe: '2'": "reads 1 and 2",
    "recipe: 2\nrecipe: 2": "stands here twice",
    "recipe: !!python/object/apply:os.system [id]": "is not allowed",
    "recipe: 2\nabout: !!binary aGk=": "is not allowed",
    "recipe: 2\nlock: {}": "edited since it was written",
    "recipe: 2\nlock: 5": "expected keys and values",
    "recipe: 2\n---\nrecipe: 2": "expected a single document",
    "a: &a [x, x]\nb: &b [*a, *a]\nrecipe: *a": "reads 1 and 2",
}


@pytest.mark.parametrize("text", NO_RECIPES)
def test_what_is_no_recipe_is_explained(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(KernloomError) as error:
        read_recipe(path)
    assert NO_RECIPES[text] in str(error.value)
    assert str(path) in str(error.value)


def test_bombs_and_large_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    bomb = ["a0: &a0 [x, x]"] + [
        f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, 12)
    ]
    path.write_text("\n".join(["recipe: 2", *bomb]), encoding="utf-8")
    with pytest.raises(KernloomError, match="too many values"):
        read_recipe(path)
    path.write_text("recipe: " + "[" * 10_000, encoding="utf-8")
    with pytest.raises(KernloomError, match="nested too deeply"):
        read_recipe(path)
    with path.open("wb") as file:
        file.truncate(40 << 20)
    with pytest.raises(KernloomError, match="at most 32 MiB"):
        read_recipe(path)
