"""The results of `check` as a matrix for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.measure.trial import SCENE, Trial
from kernloom.measure.verify import NO_GOLDEN
from kernloom.report.page import print_rows
from kernloom.report.tables import closing_line, print_failures, print_warnings
from kernloom.store.keys import value_text


def print_checks(trials: Sequence[Trial], build: Mapping[str, Any], file: TextIO) -> None:
    """One row per workload and swept point; the columns are cases, or targets if those differ. The
    cases of scenes have rows of their own."""
    scenes = [trial for trial in trials if SCENE in trial.point]
    if rest := [trial for trial in trials if SCENE not in trial.point]:
        _print_workloads(rest, file)
    if scenes:
        print_rows([_scene_row(trial) for trial in scenes], file)
    print_failures(trials, file)
    print_warnings(trials, file)
    print(closing_line(trials, build), file=file)


def _scene_row(trial: Trial) -> dict[str, str]:
    point = {key: value for key, value in trial.point.items() if key not in (SCENE, "runtime")}
    time = trial.metrics.get(VIRTUAL_TIME.name)
    good = "golden skipped" if NO_GOLDEN in trial.warnings else "verified"
    return {
        "scene": f"{trial.point[SCENE]}::{trial.case}",
        "target": trial.target,
        "runtime": str(trial.point.get("runtime", "")),
        "point": " ".join(f"{key}={value_text(value)}" for key, value in point.items()),
        VIRTUAL_TIME.heading: VIRTUAL_TIME.text(time) if time is not None else "",
        "result": good if trial.good else trial.status,
    }


def _print_workloads(trials: Sequence[Trial], file: TextIO) -> None:
    by_target = len({trial.case for trial in trials}) == 1 < len({t.target for t in trials})
    heads = list(dict.fromkeys(trial.target if by_target else trial.case for trial in trials))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for trial in trials:
        point = " ".join(
            f"{key}={value_text(value)}"
            for key, value in trial.point.items()
            if key not in ("case", "target", "workload")
        )
        names = {"workload": trial.workload, "point": point}
        if not by_target:
            names = {"workload": trial.workload, "target": trial.target, "point": point}
        row = rows.setdefault(tuple(names.values()), names | dict.fromkeys(heads, ""))
        row[trial.target if by_target else trial.case] = "verified" if trial.good else trial.status
    print_rows(list(rows.values()), file)
