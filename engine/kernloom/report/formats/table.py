"""Tables for people, on a terminal or in a file."""

from __future__ import annotations

from typing import TextIO

from kernloom.base.spool import Spool
from kernloom.report.format import (
    CheckReport,
    CompareReport,
    Format,
    ResultsReport,
    RunReport,
    StudyReport,
)
from kernloom.report.questions import Answer

# Table modules are imported when a table is drawn: a run shows progress long before.


def write_run(report: RunReport, out: TextIO) -> None:
    from kernloom.report.tables import print_failures, print_run

    print_run(report.trials, report.build, out, report.samples_of)
    if report.screened is not None:
        print_failures(report.screened, out)
        print(report.screening, file=out)
    if report.insight is not None:
        from kernloom.report.why import print_insight

        print_insight(report.insight, report.trials, out)


def write_check(report: CheckReport, out: TextIO) -> None:
    from kernloom.report.checks import print_checks

    print_checks(report.trials, report.build, out)


def write_compare(report: CompareReport, out: TextIO) -> None:
    from kernloom.report.comparisons import print_comparisons

    print_comparisons(report.found, out)


def write_study(report: StudyReport, out: TextIO) -> None:
    from kernloom.report.studies import print_study

    print_study(report.document, out)


def write_results(report: ResultsReport, out: TextIO) -> int:
    from kernloom.report.tables import print_results

    found = Spool(report.trials)
    print_results(found, out)
    return len(found)


def write_rows(answer: Answer, out: TextIO) -> None:
    from kernloom.report.tables import print_answer

    print_answer(answer, out)


TABLE = Format(
    "tables for people",
    run=write_run,
    check=write_check,
    compare=write_compare,
    tune=write_study,
    results=write_results,
    rows=write_rows,
    tells_screening=True,
    tells_insight=True,
    for_people=True,
)
