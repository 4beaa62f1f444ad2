"""Trials for other programs: Parquet files, and the T4 format of the autotuning community.

T4 is what Kernel Tuner and the benchmarks built around it read and write: one entry for each
configuration, its times in milliseconds.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.base.gauges import metric_named
from kernloom.measure.trial import Samples, Trial
from kernloom.report.columns import leaves
from kernloom.report.csv import rows_of
from kernloom.report.documents import plain

T4_VERSION = "1.0.0"
T4_REST = {"schema_version": T4_VERSION}
"""What a T4 document has beside its results."""
BATCH = 1000
"""How many rows are written to a Parquet file at a time."""
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
_MS = 1e-6
PARQUET = "pyarrow"


def t4_document(
    trials: Sequence[Trial],
    objective: Callable[[Trial], str],
    samples_of: Callable[[Trial], Sequence[Samples]],
) -> dict[str, Any]:
    """The trials as T4 results."""
    results = [t4_result(trial, objective(trial), samples_of(trial)) for trial in trials]
    return {"results": results, **T4_REST}


def t4_result(trial: Trial, objective: str, samples: Sequence[Samples]) -> dict[str, Any]:
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
    known = metric_named(metric)
    return known.unit if known else ""


def write_parquet(trials: Iterable[Trial], path: Path) -> int:
    """A typed column for every number, parameter and swept key, and the config as JSON; returns
    the number of rows."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UnavailableError(
            f"output=parquet needs the Python package {PARQUET}: {error}",
            hint=f"Install it: {sys.executable} -m pip install {PARQUET}",
        ) from None
    names, rows = rows_of(trials, "config", "machine")
    kinds: dict[str, set[type]] = {name: set() for name in names}
    for row in rows:
        for name, value in row.items():
            kinds[name].add(type(value))
    types = {name: _type(name, kinds[name] - {type(None)}, pyarrow) for name in names}
    schema = pyarrow.schema(list(types.items()))
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            whole = Path(folder) / path.name
            with parquet.ParquetWriter(whole, schema) as writer:
                for some in _batches(rows):
                    columns = [_column([row.get(n) for row in some], types[n]) for n in names]
                    writer.write_table(pyarrow.table(columns, schema=schema))
            whole.replace(path)
    except OSError as error:
        raise KernloomError(f"cannot write {path}: {error.strerror or error}") from None
    return len(rows)


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows, so many at a time; none once if there are none."""
    waiting = iter(rows)
    some = list(itertools.islice(waiting, BATCH))
    while True:
        yield some
        some = list(itertools.islice(waiting, BATCH))
        if not some:
            return


def _type(name: str, kinds: set[type], pyarrow: Any) -> Any:
    """The type of a column with values of these kinds."""
    if name == "created":
        return pyarrow.timestamp("ms", tz="UTC")
    if kinds <= {int, float} and kinds != {int}:
        return pyarrow.float64()
    if kinds in ({int}, {bool}):
        return pyarrow.int64() if kinds == {int} else pyarrow.bool_()
    return pyarrow.string()


def _column(values: Sequence[Any], type: Any) -> Any:
    import pyarrow

    def converted(value: Any) -> Any:
        if value is None:
            return None
        if pyarrow.types.is_timestamp(type):
            return datetime.fromisoformat(value)
        if pyarrow.types.is_floating(type):
            return float(value)
        return _text(value) if wanted_text and not isinstance(value, str) else value

    wanted_text = pyarrow.types.is_string(type)
    return pyarrow.array(list(map(converted, values)), type)


def _text(value: Any) -> str:
    return json.dumps(plain(value) if isinstance(value, (Mapping, list, tuple)) else value)
