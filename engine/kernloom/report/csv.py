"""Trials as CSV: one line each, one column for every number, parameter and swept key."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, TextIO

from kernloom.measure.trial import Trial
from kernloom.report.columns import leaves, value_text
from kernloom.store.rows import name_in

_DOCUMENTS = ("point", "params", "metrics")


def write_csv(trials: Sequence[Trial], file: TextIO) -> None:
    rows = [_row(trial) for trial in trials]
    names = dict.fromkeys(_row(Trial("", "", "", "", "", False)))
    for document in _DOCUMENTS:
        names |= dict.fromkeys(n for row in rows for n in row if n.startswith(f"{document}."))
    writer = csv.DictWriter(file, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


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
        "verified": value_text(trial.verified),
        "stage": trial.stage,
        "message": trial.message,
        "seconds": trial.seconds,
    }
    for document in _DOCUMENTS:
        for path, value in leaves(getattr(trial, document)):
            row[f"{document}.{path}"] = value_text(value)
    return row
