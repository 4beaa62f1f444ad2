"""The objective of a run in a file: the number that an external optimiser minimises."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from kernloom.base.files import write_atomically
from kernloom.measure.ranking import FAILED, Objective, objective
from kernloom.measure.trial import Trial

UNKNOWN = ("unavailable", "interrupted")
"""Statuses that say nothing about the quality of a point."""


def files_of_jobs(folder: Path) -> list[Path]:
    """The files that jobs have left, named by job number, without those being written."""
    return [path for path in folder.glob("*") if path.name.isdecimal()]


def write_objective(path: Path, trials: Sequence[Trial]) -> None:
    """Write the objective of a run's one trial, unless it is unknown."""
    for trial in trials:
        if trial.status not in UNKNOWN:
            _write(path, objective(trial))


def write_refused(path: Path) -> None:
    """Write that the point cannot run at all: any other one is better."""
    _write(path, FAILED)


def read_objective(path: Path) -> Objective | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    value = math.inf if kept["value"] is None else float(kept["value"])
    return Objective(str(kept["metric"]), value, str(kept["work"]))


def _write(path: Path, found: Objective) -> None:
    # JSON has no infinity.
    value = found.value if math.isfinite(found.value) else None
    write_atomically(path, json.dumps({**vars(found), "value": value}) + "\n")
