"""One line of JSON per trial, comparison or row."""

from __future__ import annotations

import json
from typing import TextIO

from kernloom.measure.trial import Trial
from kernloom.report.documents import (
    run_trial_document,
    screened_document,
    stored_document,
    to_json,
)
from kernloom.report.format import CompareReport, Format, ResultsReport, RunReport
from kernloom.report.formats.json import write_check
from kernloom.report.questions import Answer


def trial_line(trial: Trial) -> str:
    return json.dumps(run_trial_document(trial))


def screened_line(trial: Trial) -> str:
    return json.dumps(screened_document(trial))


def write_run(report: RunReport, out: TextIO) -> None:
    # Each trial was printed when it ended.
    if report.error is not None:
        print(json.dumps({"error": report.error}), file=out)


def write_compare(report: CompareReport, out: TextIO) -> None:
    for comparison in report.found.comparisons:
        print(to_json(vars(comparison)), file=out)


def write_results(report: ResultsReport, out: TextIO) -> int:
    lines = (to_json(stored_document(trial)) for trial in report.trials)
    return sum(out.write(line + "\n") > 0 for line in lines)


def write_rows(answer: Answer, out: TextIO) -> None:
    for row in answer.documents():
        print(to_json(row), file=out)


JSONL = Format(
    "a line of JSON for each trial, in a run as soon as it ends",
    run=write_run,
    check=write_check,
    compare=write_compare,
    results=write_results,
    rows=write_rows,
    trial_line=trial_line,
    screened_line=screened_line,
)
