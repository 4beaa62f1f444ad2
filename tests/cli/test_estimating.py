"""The time of a sweep is estimated from some of its points."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Project
from kernloom.base.places import find_places
from kernloom.run import estimating
from kernloom.run.assembly import Assembly
from kernloom.run.estimating import estimate
from kernloom.store.store import open_store
from parsed import plans_of


@pytest.mark.parametrize("number", [1, 9, 10, 11, 19, 20, 21, 35])
def test_the_estimate_of_any_number_of_points_grows_with_it(
    shared_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(estimating, "MAX_POINTS_EXAMINED", 10)
    assembly = Assembly(find_places(shared_project.folder))
    sizes = f"workload.sizes.N=range(1000,{1000 + number})"
    plans = plans_of(assembly, ["workload=axpy", sizes], multirun=True)
    with open_store(tmp_path / "store.db") as store:
        builder = assembly.builder(plans[0].experiment)
        one = estimate([], plans[:1], builder, store)["run"]
        all_of_them = estimate([], plans, builder, store)["run"]
    assert all_of_them["guessed"] == number
    assert all_of_them["seconds"] == pytest.approx(number * one["seconds"], abs=0.01)
