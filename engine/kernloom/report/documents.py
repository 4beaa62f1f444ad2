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
"""Fields of a document about the build; `scons` is the number of times SCons was started."""


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
    """The document of `run`; `build` has the numbers of built and cached artifacts, and the
    time."""
    return {"trials": list(map(run_trial_document, trials)), "build": build_document(build)}


def run_trial_document(trial: Trial) -> dict[str, Any]:
    """A trial of a run; marked if an earlier point has the same trial."""
    return trial_document(trial) | ({"same": True} if trial.same else {})


def build_document(build: Mapping[str, Any]) -> dict[str, Any]:
    return {name: build.get(name, 0) for name in BUILD_NAMES}


def screened_document(trial: Trial) -> dict[str, Any]:
    """A screened point: its ranking value and its problem, but no result."""
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
    """A stored trial, with everything needed to trace its numbers."""
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


def plain(value: Any) -> Any:
    """Plain JSON: infinities and NaN become null, because JSON has neither."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(document: Any) -> str:
    """JSON in one line, in ASCII also for a program's output."""
    return json.dumps(document, allow_nan=False)
