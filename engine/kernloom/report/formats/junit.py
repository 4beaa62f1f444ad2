"""JUnit XML for CI: one test case per trial or comparison."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TextIO
from xml.sax.saxutils import escape, quoteattr

from kernloom.base.units import xml_text
from kernloom.measure.comparison import Compared
from kernloom.measure.trial import Trial
from kernloom.report.comparisons import verdict_text
from kernloom.report.format import CheckReport, CompareReport, Format, RunReport
from kernloom.store.keys import value_text


def write_run(report: RunReport, out: TextIO) -> None:
    write_trials(report.trials, out)


def write_check(report: CheckReport, out: TextIO) -> None:
    write_trials(report.trials, out)


def write_compare(report: CompareReport, out: TextIO) -> None:
    out.write(comparisons_suite(report.found, report.failing))


def write_trials(trials: Sequence[Trial], out: TextIO) -> None:
    """The trials as one test suite."""
    failed = sum(not trial.good and trial.status != "unavailable" for trial in trials)
    skipped = sum(not trial.good and trial.status == "unavailable" for trial in trials)
    seconds = sum(trial.seconds for trial in trials)
    out.write(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="kernloom" tests="{len(trials)}" failures="{failed}" '
        f'skipped="{skipped}" time="{seconds:.6f}">\n'
    )
    for trial in trials:
        out.write(_test_case(trial))
    out.write("</testsuite>\n")


def _test_case(trial: Trial) -> str:
    point = ",".join(f"{key}={value_text(value)}" for key, value in trial.point.items())
    name = quoteattr(xml_text(f"{trial.case} [{point}]" if point else trial.case))
    suite = quoteattr(xml_text(f"{trial.target}.{trial.workload}"))
    opening = f'  <testcase classname={suite} name={name} time="{trial.seconds:.6f}"'
    if trial.good:
        return f"{opening}/>\n"
    kind = "skipped" if trial.status == "unavailable" else "failure"
    said = trial.message.splitlines()
    message = quoteattr(xml_text(f"{trial.status}: {said[0]}" if said else trial.status))
    text = escape(xml_text(trial.message))
    return f"{opening}>\n    <{kind} message={message}>{text}</{kind}>\n  </testcase>\n"


def comparisons_suite(found: Compared, failing: Collection[str]) -> str:
    """One test case per comparison, failed if its verdict is in `failing`; a contender that could
    not be compared is an error."""
    cases = []
    for comparison in found.comparisons:
        name = quoteattr(xml_text(f"{comparison.b} against {comparison.a}"))
        opening = f'  <testcase classname="kernloom.compare" name={name}'
        if comparison.verdict in failing:
            message = quoteattr(xml_text(verdict_text(comparison)))
            cases.append(f"{opening}><failure message={message}/></testcase>")
        else:
            cases.append(
                f"{opening}><system-out>{escape(xml_text(verdict_text(comparison)))}</system-out></testcase>"
            )
    failures = len([1 for item in found.comparisons if item.verdict in failing])
    broken = [entry for entry in found.entries if entry.status != "ok"]
    for entry in broken:
        name = quoteattr(xml_text(entry.name))
        text = escape(xml_text(entry.message))
        cases.append(
            f'  <testcase classname="kernloom.compare" name={name}>'
            f"<error message={quoteattr(entry.status)}>{text}</error></testcase>"
        )
    total = len(found.comparisons) + len(broken)
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuite name="kernloom compare" tests="{total}" failures="{failures}" '
            f'errors="{len(broken)}">',
            *cases,
            "</testsuite>",
            "",
        ]
    )


JUNIT = Format(
    "JUnit XML, a test case for each trial or comparison",
    run=write_run,
    check=write_check,
    compare=write_compare,
    exact=True,
)
