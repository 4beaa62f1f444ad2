"""Trials as flat rows: a column for every number, parameter and swept key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kernloom.base.spool import BLOCK, Spool
from kernloom.measure.trial import Trial
from kernloom.report.columns import leaves
from kernloom.report.documents import plain
from kernloom.store.rows import name_in

_DOCUMENTS = ("point", "params", "metrics")


def rows_of(trials: Iterable[Trial], *others: str) -> tuple[list[str], Spool[dict[str, Any]]]:
    """The names of all columns, and the trials as rows with some of them.

    `others` are documents that get a column each, as JSON.
    """
    rows: Spool[dict[str, Any]] = Spool(in_memory=BLOCK)
    found: dict[str, dict[str, None]] = {document: {} for document in _DOCUMENTS}
    for trial in trials:
        row = _row(trial)
        for name in row:
            document, dot, _ = name.partition(".")
            if dot:
                found[document][name] = None
        rows.append(row | {name: json.dumps(plain(getattr(trial, name))) for name in others})
    names = [*_row(Trial("", "", "", "", "", False)), *(n for each in found.values() for n in each)]
    return [*names, *others], rows


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
