"""Parquet files: typed columns, with config and machine as JSON."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.measure.trial import Trial
from kernloom.report.documents import plain
from kernloom.report.format import Format, ResultsReport
from kernloom.report.rows import rows_of

BATCH = 1000
"""Rows written to a file at a time."""
PACKAGE = "pyarrow"


def write_results(report: ResultsReport, path: Path) -> int:
    return write_parquet(report.trials, path)


def write_parquet(trials: Iterable[Trial], path: Path) -> int:
    """Write a typed column for every number, parameter and swept key, and the config as JSON;
    returns the number of rows."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UnavailableError(
            f"output=parquet needs the Python package {PACKAGE}: {error}",
            hint=f"Install it: {sys.executable} -m pip install {PACKAGE}",
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
    """The rows in batches; one empty batch if there are none."""
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


PARQUET = Format("typed columns in a binary file", results_file=write_results)
