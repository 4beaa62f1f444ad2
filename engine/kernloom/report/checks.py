"""The results of `check` as a matrix for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.measure.trial import Trial
from kernloom.report.page import print_rows
from kernloom.report.tables import closing_line, print_failures, print_warnings
from kernloom.store.keys import value_text


def print_checks(trials: Sequence[Trial], build: Mapping[str, Any], file: TextIO) -> None:
    """One row per workload and swept point; the columns are cases, or targets if those differ."""
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
    print_failures(trials, file)
    print_warnings(trials, file)
    print(closing_line(trials, build), file=file)
