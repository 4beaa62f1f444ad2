"""Trials for other programs: Parquet files, and the T4 format of the autotuning community.

T4 is what Kernel Tuner and the benchmarks built around it read and write: one entry for each
configuration, its times in milliseconds.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from kernloom.errors import KernloomError, UnavailableError
from kernloom.measure.trial import Samples, Trial
from kernloom.report.columns import leaves
from kernloom.report.csv import rows_of
from kernloom.report.documents import plain

T4_VERSION = "1.0.0"
INVALIDITY = {
    "ok": "correct",
    "unconverged": "correct",
    "wrong": "correctness",
    "out_of_bounds": "correctness",
    "timeout": "timeout",
    "build_failed": "compile",
    "refused": "constraints",
}
"""Status -> what T4 calls it; any other is `runtime`."""
_UNITS = {
    "_ns": "ns",
    "gflops": "GFLOP/s",
    "gbytes_per_s": "GB/s",
    "_bytes": "B",
}
_MS = 1e-6
PARQUET = "pyarrow"


def t4_document(
    trials: Sequence[Trial],
    objective: str,
    samples_of: Callable[[Trial], Sequence[Samples]],
) -> dict[str, Any]:
    """The trials as T4 results."""
    results = [_t4_result(trial, objective, samples_of(trial)) for trial in trials]
    return {"results": results, "schema_version": T4_VERSION}


def _t4_result(trial: Trial, objective: str, samples: Sequence[Samples]) -> dict[str, Any]:
    runtimes = [wall * _MS for taken in samples for wall in taken.wall_ns]
    benchmark = math.fsum(wall * taken.inner * _MS for taken in samples for wall in taken.wall_ns)
    return {
        "timestamp": trial.created,
        "configuration": _configuration(trial),
        "objectives": [objective],
        "times": {
            # Artifacts are shared by trials and built before any of them; there is no search
            # within a trial, and verifying is a part of the rest.
            "compilation": 0.0,
            "benchmark": benchmark,
            "framework": max(0.0, trial.seconds * 1e3 - benchmark),
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": runtimes,
        },
        "invalidity": INVALIDITY.get(trial.status, "runtime"),
        "correctness": int(trial.verified),
        "measurements": [
            {"name": name, "value": value, "unit": _unit(name)}
            for name, value in leaves(plain(trial.metrics))
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ],
    }


def _configuration(trial: Trial) -> dict[str, Any]:
    """What was chosen: workload and where it ran, the swept keys, every parameter."""
    chosen = {"workload": trial.workload, "case": trial.case, "target": trial.target}
    return {**chosen, **plain(trial.point), **dict(leaves(plain(trial.params)))}


def _unit(metric: str) -> str:
    return next((unit for end, unit in _UNITS.items() if metric.endswith(end)), "")


def write_parquet(trials: Sequence[Trial], path: Path) -> None:
    """A typed column for every number, parameter and swept key, and the config as JSON."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UnavailableError(
            f"output=parquet needs the Python package {PARQUET}: {error}",
            hint=f"Install it: {sys.executable} -m pip install {PARQUET}",
        ) from None
    names, rows = rows_of(trials)
    table = {name: _typed([row.get(name) for row in rows], name, pyarrow) for name in names}
    for name in ("config", "machine"):
        texts = [json.dumps(plain(getattr(trial, name))) for trial in trials]
        table[name] = pyarrow.array(texts, pyarrow.string())
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            whole = Path(folder) / path.name
            parquet.write_table(pyarrow.table(table), whole)
            whole.replace(path)
    except OSError as error:
        raise KernloomError(f"cannot write {path}: {error.strerror or error}") from None


def _typed(values: Sequence[Any], name: str, pyarrow: Any) -> Any:
    if name == "created":
        times = [datetime.fromisoformat(value) for value in values]
        return pyarrow.array(times, pyarrow.timestamp("ms", tz="UTC"))
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds != {int}:
        return pyarrow.array([None if v is None else float(v) for v in values], pyarrow.float64())
    if len(kinds) == 1 and kinds <= {int, bool, str}:
        return pyarrow.array(values)
    texts = [None if v is None else v if isinstance(v, str) else _text(v) for v in values]
    return pyarrow.array(texts, pyarrow.string())


def _text(value: Any) -> str:
    return json.dumps(plain(value) if isinstance(value, (Mapping, list, tuple)) else value)
