"""Trials as the JSON documents that commands print."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from kernloom.base.gauges import GAUGES
from kernloom.measure.trial import Trial
from kernloom.store.rows import name_in

BUILD_NAMES = ("built", "cached", "failed", "seconds", "scons")
"""What a document says about building; `scons` is how often SCons was started."""


def trial_document(trial: Trial) -> dict[str, Any]:
    return {
        "id": trial.id,
        "workload": trial.workload,
        "case": trial.case,
        "target": trial.target,
        "point": plain(trial.point),
        "params": plain(trial.params),
        "provider": trial.provider,
        "status": trial.status,
        "verified": trial.verified,
        "metrics": plain(trial.metrics),
        "placement": plain(trial.placement),
        "artifacts": [
            {name: artifact.get(name) for name in ("name", "key", "cached")}
            for artifact in trial.artifacts
        ],
        "stage": trial.stage,
        "message": trial.message,
        "warnings": list(trial.warnings),
        "conditions": plain(trial.conditions),
        "reused": trial.reused,
    }


def run_document(trials: Iterable[Trial], build: Mapping[str, Any]) -> dict[str, Any]:
    """What `run` prints; `build` says how many artifacts were built and cached, in what time."""
    return {"trials": list(map(run_trial_document, trials)), "build": build_document(build)}


def run_trial_document(trial: Trial) -> dict[str, Any]:
    """A trial of a run: it says so if it stands at an earlier point, too."""
    return trial_document(trial) | ({"same": True} if trial.same else {})


def build_document(build: Mapping[str, Any]) -> dict[str, Any]:
    return {name: build.get(name, 0) for name in BUILD_NAMES}


def screened_document(trial: Trial) -> dict[str, Any]:
    """A point of a screening: what to rank it by, and what went wrong, but no result."""
    names = (gauge.name for gauge in GAUGES.by_rank(trial.metrics))
    metrics = {name: trial.metrics[name] for name in names if name in trial.metrics}
    return {
        "point": plain(trial.point),
        "params": plain(trial.params),
        "status": trial.status,
        "verified": trial.verified,
        **plain(metrics),
        "stage": trial.stage,
        "message": trial.message,
        "screened": True,
    }


def stored_document(trial: Trial) -> dict[str, Any]:
    """A trial from the store, with what it takes to trace its numbers."""
    return trial_document(trial) | {
        "created": trial.created,
        "reuses": trial.reuses,
        "source": trial.source,
        "seconds": trial.seconds,
        "arch": name_in(trial.config, "arch"),
        "toolchain": name_in(trial.config, "toolchain"),
        "variant": name_in(trial.config, "target", "variant"),
        "machine": plain(trial.machine),
        "config": plain(trial.config),
        "stderr": trial.stderr,
    }


def results_document(trials: Iterable[Trial]) -> dict[str, Any]:
    return {"trials": [stored_document(trial) for trial in trials]}


def plain(value: Any) -> Any:
    """JSON has neither infinities nor NaN, and a reader should not have to guess: null."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(document: Any) -> str:
    """One line; what a program printed stays inside ASCII."""
    return json.dumps(document, allow_nan=False)
