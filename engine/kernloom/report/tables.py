"""Trials as tables for people, on a terminal or in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.measure.trial import Trial
from kernloom.report.alike import alike
from kernloom.report.columns import Column, results_columns, run_columns, subjects_text
from kernloom.report.page import Heading, Page
from kernloom.report.units import count, time_text

MESSAGE_LINES = 12
SUBJECTS = 5
"""How many trials are named that failed in the same way."""

_STYLES = {"ok": "green", "unconverged": "yellow", "unavailable": "yellow", "refused": "yellow"}


def print_run(trials: Sequence[Trial], build: Mapping[str, Any], file: TextIO) -> None:
    """The table of a run or sweep, what failed and why, and one closing line."""
    page = Page(file)
    _table(page, trials, run_columns(trials))
    _failures(page, [trial for trial in trials if not trial.good])
    page.line(closing_line(trials, build))


def print_results(trials: Sequence[Trial], file: TextIO) -> None:
    """The table of a query; of what went wrong, one line each."""
    page = Page(file)
    _table(page, trials, results_columns(trials))
    page.line(count(len(trials), "trial"))


def print_failures(failed: Sequence[Trial], file: TextIO) -> None:
    _failures(Page(file), failed)


def print_rows(rows: Sequence[Mapping[str, str]], file: TextIO) -> None:
    """Plain rows under their keys as headers; columns that are empty everywhere are left out."""
    names = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    headings = [Heading(name, folds=True) for name in names]
    Page(file).table(headings, [[row[name] for name in names] for row in rows])


def closing_line(trials: Sequence[Trial], build: Mapping[str, Any]) -> str:
    """`6 verified, 0 failed; built 2, cached 4, 1.3 s`."""
    good = [trial for trial in trials if trial.good]
    reused = sum(trial.reused for trial in trials)
    unconverged = sum(trial.status == "unconverged" for trial in good)
    words = [f"{len(good)} verified", f"{len(trials) - len(good)} failed"]
    if unconverged:
        words.append(f"{unconverged} unconverged")
    if reused:
        words.append(f"{reused} from the store")
    seconds = time_text(float(build.get("seconds", 0)) * 1e9) if build.get("seconds") else "0 s"
    built = f"built {build.get('built', 0)}, cached {build.get('cached', 0)}, {seconds}"
    runs = ", 1 SCons run" if build.get("scons") else ""
    return f"{', '.join(words)}; {built}{runs}"


def _table(page: Page, trials: Sequence[Trial], columns: Sequence[Column]) -> None:
    rows = [[column.cell(trial) for column in columns] for trial in trials]
    styles = [{"status": _style(trial)} for trial in trials]
    page.table([column.heading for column in columns], rows, styles)


def _style(trial: Trial) -> str:
    return _STYLES.get(trial.status, "red")


def _failures(page: Page, failed: Sequence[Trial]) -> None:
    """What failed, with those that failed in the same way told once."""
    for trials in alike(failed, lambda trial: (trial.status, trial.stage), _said):
        first = trials[0]
        names = subjects_text(trials[:SUBJECTS])
        more = f"; and {len(trials) - SUBJECTS} more" if len(trials) > SUBJECTS else ""
        where = f" in stage {first.stage}" if first.stage else ""
        page.line(f"{where}: {names}{more}", mark=first.status, style=_style(first))
        for line in _first_lines(_said(first)):
            page.line(f"    {line}")
        if any(_said(trial) != _said(first) for trial in trials):
            page.line("    (this is the first; the others differ only in numbers or paths)")


def _said(trial: Trial) -> str:
    return trial.message or trial.stderr


def _first_lines(text: str) -> list[str]:
    lines = text.strip().splitlines()
    if len(lines) <= MESSAGE_LINES:
        return lines
    left = len(lines) - MESSAGE_LINES
    return [*lines[:MESSAGE_LINES], f"... {count(left, 'more line')}; all of it with output=json"]
