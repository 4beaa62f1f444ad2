"""The JSON that scripts rely on."""

from __future__ import annotations

import json

from kernloom.report.documents import run_document, stored_document, to_json


def test_a_run_is_its_trials_and_its_build(make_trial):
    build = {"built": 0, "cached": 1, "seconds": 0.5, "more": "ignored"}
    document = json.loads(to_json(run_document([make_trial()], build)))
    assert document["build"] == {"built": 0, "cached": 1, "failed": 0, "seconds": 0.5, "scons": 0}
    (trial,) = document["trials"]
    assert set(trial) == {
        *("id", "workload", "case", "target", "point", "params", "provider", "status", "verified"),
        *("metrics", "placement", "artifacts", "stage", "message", "warnings", "conditions"),
        "reused",
    }
    assert trial["verified"] is True
    assert trial["point"] == {}
    assert trial["artifacts"] == [{"name": "matmul.multiply", "key": "k1", "cached": True}]
    assert trial["metrics"]["deterministic"] == []


def test_a_trial_says_why_not_to_trust_it_and_how_it_was_measured(make_trial):
    trial = make_trial(warnings=("noisy",), conditions={"clock": "cpu", "load": float("nan")})
    document = json.loads(to_json(run_document([trial], {})))["trials"][0]
    assert document["warnings"] == ["noisy"]
    assert document["conditions"] == {"clock": "cpu", "load": None}


def test_numbers_that_json_does_not_have_become_null(make_trial):
    metrics = {"median_ns": float("inf"), "list": (float("nan"), 1.0)}
    document = json.loads(to_json(run_document([make_trial(metrics=metrics)], {})))
    assert document["trials"][0]["metrics"] == {"median_ns": None, "list": [None, 1.0]}


def test_whatever_a_kernel_printed_can_be_written_anywhere(make_trial):
    message = b"\xff \xc2\xb5".decode(errors="surrogateescape")
    text = to_json(run_document([make_trial(message=message)], {}))
    assert text.isascii()


def test_a_line_is_one_line(make_trial):
    assert "\n" not in to_json(run_document([make_trial(message="a\nb")], {}))


def test_results_say_how_each_number_came_about(make_trial):
    trial = stored_document(make_trial(machine={"cpu": "x"}))
    assert trial["arch"] == "zen4"
    assert trial["toolchain"] == "gcc"
    assert trial["machine"] == {"cpu": "x"}
    assert trial["created"].startswith("2025-01-02")
