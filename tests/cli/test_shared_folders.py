"""Folders that several processes write to at once are read without what is not whole yet."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from kernloom.cli import hydra_app
from kernloom.cli.hydra_job import comparable
from kernloom.measure.ranking import Objective
from kernloom.run import saved_baselines
from kernloom.run.objectives import write_refused

OPTUNA = "name: optuna\nbest_params: {seed: 1}\nbest_value: 2.0\n"


@pytest.fixture
def objectives(tmp_path: Path) -> Path:
    """Those of two jobs, while a third one writes its own."""
    folder = tmp_path / hydra_app.OBJECTIVES
    folder.mkdir()
    for job in range(2):
        write_refused(folder / str(job))
    (folder / ".2.abcdefgh").touch()
    (folder / ".nfs0001").touch()
    return folder


def test_an_objective_that_is_being_written_is_not_read(objectives: Path) -> None:
    assert comparable(Objective("median_ns", 1.0, "work"), objectives)


def test_the_best_point_is_said_while_an_objective_is_being_written(objectives: Path) -> None:
    (objectives.parent / hydra_app.BEST).write_text(OPTUNA)
    assert hydra_app._best(objectives.parent).startswith("optuna found seed=1: ")


def test_a_copy_for_a_baseline_is_made_while_nobody_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, kept = tmp_path / "made", tmp_path / "kept" / "key"
    made.mkdir()
    (made / "file").touch()
    copied = []

    def copy(source: Path, destination: Path) -> None:
        handle = os.open(kept.parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        copied.append(shutil.copyfile(source, destination))

    monkeypatch.setattr(shutil, "copy2", copy)
    saved_baselines._copy(made, kept, ["file"])
    assert (len(copied), (kept / "file").exists()) == (1, True)
