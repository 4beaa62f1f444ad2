"""Trials and samples as rows of plain text and numbers, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import kernloom
from kernloom.files import canonical_json
from kernloom.measure.trial import Samples, Trial

DOCUMENTS = (
    "point",
    "params",
    "metrics",
    "placement",
    "conditions",
    "warnings",
    "overrides",
    "artifacts",
    "config",
    "machine",
)
"""Columns that hold JSON; a dotted key looks into them."""


LISTS = ("artifacts", "warnings", "overrides")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def name_in(config: Mapping[str, Any], group: str, key: str = "name") -> str:
    """`config.GROUP.KEY`, or nothing where a config does not go that far."""
    chosen = config.get(group)
    return str(chosen.get(key, "")) if isinstance(chosen, Mapping) else str(chosen or "")


def _text(text: str) -> str:
    """What a program printed may be no valid Unicode; a database takes nothing else."""
    return text.encode("utf-8", "replace").decode()


def row_of(trial: Trial) -> dict[str, Any]:
    return {
        "id": trial.id,
        "created": trial.created or now(),
        "workload": trial.workload,
        "case_name": trial.case,
        "target": trial.target,
        "arch": name_in(trial.config, "arch"),
        "toolchain": name_in(trial.config, "toolchain"),
        "variant": name_in(trial.config, "target", "variant"),
        "status": trial.status,
        "verified": trial.verified,
        "stage": trial.stage,
        "message": _text(trial.message),
        "provider": trial.provider,
        "seconds": trial.seconds,
        "version": kernloom.__version__,
        **{name: _text(json.dumps(getattr(trial, name))) for name in DOCUMENTS},
        "stderr": _text(trial.stderr),
    }


def trial_of(row: Mapping[Any, Any]) -> Trial:
    documents = {name: json.loads(row[name]) for name in DOCUMENTS}
    # Up to version 1 of the tables it was among the metrics.
    documents["placement"] |= documents["metrics"].pop("placement", {})
    return Trial(
        id=row["id"],
        workload=row["workload"],
        case=row["case_name"],
        target=row["target"],
        status=row["status"],
        verified=row["verified"],
        provider=row["provider"],
        stage=row["stage"],
        message=row["message"],
        stderr=row["stderr"],
        created=row["created"],
        seconds=row["seconds"],
        **documents | {name: tuple(documents[name]) for name in LISTS},
    )


def sample_row(trial: str, process: int, samples: Samples) -> dict[str, Any]:
    return {
        "trial": trial,
        "process": process,
        "inner_count": samples.inner,
        "wall_ns": canonical_json(samples.wall_ns),
        "cpu_ns": canonical_json(samples.cpu_ns),
        "involuntary": canonical_json(samples.involuntary),
        "transfer_ns": canonical_json(samples.transfer_ns),
    }


def samples_of(row: Mapping[Any, Any]) -> Samples:
    names = ("wall_ns", "cpu_ns", "involuntary", "transfer_ns")
    return Samples(row["inner_count"], *(tuple(json.loads(row[name])) for name in names))
