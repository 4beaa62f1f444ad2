"""Everything in one JSON document."""

from __future__ import annotations

import json
from typing import Any, TextIO

from kernloom.report.documents import (
    build_document,
    plain,
    run_document,
    run_trial_document,
    screened_document,
    stored_document,
    to_json,
)
from kernloom.report.format import (
    CheckReport,
    CompareReport,
    Format,
    ResultsReport,
    RunReport,
    StudyReport,
)
from kernloom.report.questions import Answer
from kernloom.report.streaming import write_list


def write_run(report: RunReport, out: TextIO) -> None:
    rest: dict[str, Any] = {"build": build_document(report.build)}
    if report.interrupted:
        rest["interrupted"] = True
    if report.error is not None:
        rest["error"] = report.error
    if report.screened is not None:
        rest["screened"] = [screened_document(trial) for trial in report.screened]
    insight = report.insight
    documents = (
        run_trial_document(trial) | (insight.document(trial) if insight else {})
        for trial in report.trials
    )
    write_list("trials", map(json.dumps, documents), rest, out)


def write_check(report: CheckReport, out: TextIO) -> None:
    print(json.dumps(run_document(report.trials, report.build)), file=out)


def write_compare(report: CompareReport, out: TextIO) -> None:
    # Imported late: only `compare` needs it.
    from kernloom.report.comparisons import comparisons_document

    print(to_json(comparisons_document(report.found)), file=out)


def write_study(report: StudyReport, out: TextIO) -> None:
    print(to_json(plain(report.document)), file=out)


def write_results(report: ResultsReport, out: TextIO) -> int:
    return write_list("trials", map(to_json, map(stored_document, report.trials)), {}, out)


def write_rows(answer: Answer, out: TextIO) -> None:
    print(to_json({"rows": answer.documents()}), file=out)


JSON = Format(
    "one JSON document with everything about each trial",
    run=write_run,
    check=write_check,
    compare=write_compare,
    tune=write_study,
    results=write_results,
    rows=write_rows,
    tells_screening=True,
    tells_insight=True,
)
