"""Trials as CSV: one line each, one column for every number, parameter and swept key."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, TextIO

from kernloom.measure.trial import Trial
from kernloom.report.columns import leaves
from kernloom.report.questions import Answer
from kernloom.store.keys import value_text
from kernloom.store.rows import name_in

_DOCUMENTS = ("point", "params", "metrics")


def write_csv(trials: Sequence[Trial], file: TextIO) -> None:
    names, rows = rows_of(trials)
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: value_text(value) for name, value in row.items()})


def write_answer(answer: Answer, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(answer.headings)
    for row in answer.rows:
        writer.writerow(["" if value is None else value_text(value) for value in row])


def rows_of(trials: Sequence[Trial]) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of all columns, and the trials as rows that have some of them."""
    rows = [_row(trial) for trial in trials]
    names = dict.fromkeys(_row(Trial("", "", "", "", "", False)))
    for document in _DOCUMENTS:
        names |= dict.fromkeys(n for row in rows for n in row if n.startswith(f"{document}."))
    return list(names), rows


def _row(trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": trial.id,
        "created": trial.created,
        "workload": trial.workload,
        "case": trial.case,
        "target": trial.target,
        "arch": name_in(trial.config, "arch"),
        "toolchain": name_in(trial.config, "toolchain"),
        "variant": name_in(trial.config, "target", "variant"),
        "provider": trial.provider,
        "status": trial.status,
        "verified": trial.verified,
        "stage": trial.stage,
        "message": trial.message,
        "seconds": trial.seconds,
    }
    for document in _DOCUMENTS:
        for path, value in leaves(getattr(trial, document)):
            row[f"{document}.{path}"] = value
    return row
