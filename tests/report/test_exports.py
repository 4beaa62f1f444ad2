"""Other programs find in an export what the store has."""

from __future__ import annotations

import json
import math
import resource

import pytest

from kernloom.base.errors import KernloomError
from kernloom.config.schema import STATUSES
from kernloom.measure.trial import Samples
from kernloom.report.formats.parquet import write_parquet
from kernloom.report.formats.t4 import REST, t4_result
from parts import needs_module

INVALIDITIES = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
WRITTEN = {
    "timestamp": str,
    "configuration": dict,
    "objectives": list,
    "times": dict,
    "invalidity": str,
    "correctness": int,
    "measurements": list,
}
"""What Kernel Tuner writes for each configuration."""
TIMES = {"compilation", "benchmark", "framework", "search_algorithm", "validation", "runtimes"}


def check_t4(document):
    """As the schema of T4 results, version 1.0.0, has it."""
    assert set(document) == {"results", "schema_version"}
    assert document["schema_version"] == "1.0.0"
    for result in document["results"]:
        assert {name: type(value) for name, value in result.items()} == WRITTEN
        assert result["invalidity"] in INVALIDITIES
        assert set(result["times"]) == TIMES
        assert all(
            isinstance(value, float) and value >= 0
            for name, value in result["times"].items()
            if name != "runtimes"
        )
        for measured in result["measurements"]:
            assert set(measured) == {"name", "value", "unit"}
            assert isinstance(measured["value"], (int, float))


def t4_document(trials, samples):
    return {"results": [t4_result(trial, "median_ns", samples) for trial in trials], **REST}


def test_t4_results_have_the_fields_that_kernel_tuner_writes(make_trial):
    trials = [make_trial(status=status, verified=status == "ok") for status in STATUSES]
    taken = (Samples(10, (2e6, 3e6), (2e6, 3e6), (0, 0)),)
    document = json.loads(json.dumps(t4_document(trials, taken)))
    check_t4(document)
    said = dict(zip(STATUSES, (r["invalidity"] for r in document["results"]), strict=True))
    assert said["ok"] == said["unconverged"] == "correct"
    assert (said["wrong"], said["build_failed"], said["refused"]) == (
        "correctness",
        "compile",
        "constraints",
    )
    first = document["results"][0]
    assert first["times"]["runtimes"] == [2.0, 3.0]
    assert first["times"]["benchmark"] == 50.0
    assert first["objectives"] == ["median_ns"]
    assert first["configuration"]["tile.multiply.mr"] == 6
    assert {"name": "gflops", "value": 88.123, "unit": "GFLOP/s"} in first["measurements"]


def test_a_measurement_that_is_no_number_is_left_out_of_t4(make_trial):
    trial = make_trial(metrics={"median_ns": math.nan, "deterministic": ["x"], "n": 1})
    document = t4_document([trial], ())
    check_t4(document)
    assert [m["name"] for m in document["results"][0]["measurements"]] == ["n"]


def test_a_parquet_file_has_typed_columns(tmp_path, make_trial):
    parquet = needs_module("pyarrow.parquet")
    trials = [
        make_trial(id="a", point={"workload.sizes.M": 64, "toolchain": "gcc"}),
        make_trial(id="b", point={"workload.sizes.M": 128}, metrics={"median_ns": 2}, params={}),
    ]
    write_parquet(trials, tmp_path / "trials.parquet")
    table = parquet.read_table(tmp_path / "trials.parquet")
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert kinds["created"] == "timestamp[ms, tz=UTC]"
    assert kinds["verified"] == "bool"
    assert kinds["metrics.median_ns"] == "double"
    assert kinds["params.tile.multiply.mr"] == kinds["point.workload.sizes.M"] == "int64"
    rows = table.to_pylist()
    assert [row["metrics.median_ns"] for row in rows] == [12345.0, 2.0]
    assert [row["point.toolchain"] for row in rows] == ["gcc", None]
    assert json.loads(rows[0]["config"]) == trials[0].config


def test_no_trials_make_a_parquet_file_without_rows(tmp_path):
    parquet = needs_module("pyarrow.parquet")
    write_parquet([], tmp_path / "trials.parquet")
    assert parquet.read_table(tmp_path / "trials.parquet").num_rows == 0


def test_a_parquet_file_that_cannot_be_written_leaves_the_one_that_was_there(tmp_path, make_trial):
    needs_module("pyarrow.parquet")
    file = tmp_path / "trials.parquet"
    file.write_text("of last week")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(KernloomError, match="cannot write"):
            write_parquet([make_trial()], file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "of last week"
    assert list(tmp_path.iterdir()) == [file]
