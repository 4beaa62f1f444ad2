"""CSV: one line for each trial, one column for every number, parameter and swept key."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import fields
from typing import TextIO

from kernloom.measure.trial import Trial
from kernloom.report.format import CheckReport, CompareReport, Format, ResultsReport, RunReport
from kernloom.report.questions import Answer
from kernloom.report.rows import rows_of
from kernloom.store.keys import value_text


def write_csv(trials: Iterable[Trial], file: TextIO) -> int:
    """Write one line per trial; returns their number."""
    names, rows = rows_of(trials)
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: value_text(value) for name, value in row.items()})
    return len(rows)


def write_run(report: RunReport, out: TextIO) -> None:
    write_csv(report.trials, out)


def write_check(report: CheckReport, out: TextIO) -> None:
    write_csv(report.trials, out)


def write_compare(report: CompareReport, out: TextIO) -> None:
    """One line for each comparison."""
    from kernloom.measure.comparison import Comparison

    names = [field.name for field in fields(Comparison)]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for comparison in report.found.comparisons:
        writer.writerow([value_text(getattr(comparison, name)) for name in names])


def write_results(report: ResultsReport, out: TextIO) -> int:
    return write_csv(report.trials, out)


def write_rows(answer: Answer, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    headings, rows = answer.table()
    writer.writerow(headings)
    for row in rows:
        writer.writerow(["" if value is None else value_text(value) for value in row])


CSV = Format(
    "a line for each trial, a column for every number, parameter and swept key",
    run=write_run,
    check=write_check,
    compare=write_compare,
    results=write_results,
    rows=write_rows,
    exact=True,
)
