"""What `check` found: a matrix for people, JUnit XML for CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO
from xml.sax.saxutils import escape, quoteattr

from kernloom.base.units import xml_text
from kernloom.measure.trial import Trial
from kernloom.report.page import print_rows
from kernloom.report.tables import closing_line, print_failures, print_warnings
from kernloom.store.keys import value_text


def print_checks(trials: Sequence[Trial], build: Mapping[str, Any], file: TextIO) -> None:
    """One row per workload and swept point; the columns are cases, or targets if those differ."""
    by_target = len({trial.case for trial in trials}) == 1 < len({t.target for t in trials})
    heads = list(dict.fromkeys(trial.target if by_target else trial.case for trial in trials))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for trial in trials:
        point = " ".join(
            f"{key}={value_text(value)}"
            for key, value in trial.point.items()
            if key not in ("case", "target", "workload")
        )
        names = {"workload": trial.workload, "point": point}
        if not by_target:
            names = {"workload": trial.workload, "target": trial.target, "point": point}
        row = rows.setdefault(tuple(names.values()), names | dict.fromkeys(heads, ""))
        row[trial.target if by_target else trial.case] = "verified" if trial.good else trial.status
    print_rows(list(rows.values()), file)
    print_failures(trials, file)
    print_warnings(trials, file)
    print(closing_line(trials, build), file=file)


def junit(trials: Sequence[Trial]) -> str:
    """The trials as one test suite."""
    bad = [trial for trial in trials if not trial.good and trial.status != "unavailable"]
    skipped = [trial for trial in trials if trial.status == "unavailable"]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="kernloom" tests="{len(trials)}" failures="{len(bad)}" '
        f'skipped="{len(skipped)}" time="{sum(trial.seconds for trial in trials):.6f}">',
    ]
    for trial in trials:
        point = ",".join(f"{key}={value_text(value)}" for key, value in trial.point.items())
        name = quoteattr(xml_text(f"{trial.case} [{point}]" if point else trial.case))
        suite = quoteattr(xml_text(f"{trial.target}.{trial.workload}"))
        opening = f'  <testcase classname={suite} name={name} time="{trial.seconds:.6f}"'
        if trial.good:
            lines.append(f"{opening}/>")
            continue
        kind = "skipped" if trial.status == "unavailable" else "failure"
        said = trial.message.splitlines()
        message = quoteattr(xml_text(f"{trial.status}: {said[0]}" if said else trial.status))
        lines.append(f"{opening}>")
        lines.append(f"    <{kind} message={message}>{escape(xml_text(trial.message))}</{kind}>")
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>", ""])
