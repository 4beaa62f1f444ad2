"""Trials as tables for people, on a terminal or in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from kernloom.measure.trial import Trial
from kernloom.report.columns import Column, results_columns, run_columns, subject_text
from kernloom.report.units import count, time_text

if TYPE_CHECKING:
    from rich.console import Console

UNBOUNDED = 100_000
"""Where no terminal sets a width, lines are as long as they need to be."""
GAP = 2
"""Spaces between columns."""
FOLDED = 24
"""What a column that folds gets at least, if it wants that much."""
MESSAGE_LINES = 12
SUBJECTS = 5
"""How many trials are named that failed in the same way."""

_STYLES = {"ok": "green", "unconverged": "yellow", "unavailable": "yellow", "refused": "yellow"}


def print_run(trials: Sequence[Trial], build: Mapping[str, Any], file: TextIO) -> None:
    """The table of a run or sweep, what failed and why, and one closing line."""
    console = _console(file)
    if trials:
        _print_table(console, trials, run_columns(trials))
    _print_failures(console, [trial for trial in trials if not trial.good])
    console.print(closing_line(trials, build))


def print_results(trials: Sequence[Trial], file: TextIO) -> None:
    """The table of a query, without what went wrong in each: `status` says it."""
    console = _console(file)
    if trials:
        _print_table(console, trials, results_columns(trials))
    console.print(count(len(trials), "trial"))


def print_failures(failed: Sequence[Trial], file: TextIO) -> None:
    _print_failures(_console(file), failed)


def print_rows(rows: Sequence[Mapping[str, str]], file: TextIO) -> None:
    """Plain rows under their keys as headers; columns that are empty everywhere are left out."""
    if not rows:
        return
    from rich.table import Table
    from rich.text import Text

    console = _console(file)
    headers = [header for header in rows[0] if any(row[header] for row in rows)]
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[header]) for header in headers))
    console.print(table)


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


def _console(file: TextIO) -> Console:
    from rich.console import Console

    terminal = file.isatty()
    return Console(
        file=file,
        width=None if terminal else UNBOUNDED,
        no_color=None if terminal else True,
        force_terminal=None if terminal else False,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=not terminal,
    )


def _print_table(console: Console, trials: Sequence[Trial], columns: Sequence[Column]) -> None:
    from rich.table import Table
    from rich.text import Text

    cells = {column: [column.cell(trial) for trial in trials] for column in columns}
    widths = {c: max(map(len, (c.header, *texts))) for c, texts in cells.items()}
    shown = _fitting(columns, widths, console.width)
    fits = _needed(shown, widths) <= console.width
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for column in shown:
        table.add_column(
            column.header,
            justify="right" if column.number else "left",
            overflow="fold",
            min_width=_least(column, widths) if fits else None,
        )
    for number, trial in enumerate(trials):
        texts = {column: cells[column][number] for column in shown}
        styles = {"status": _style(trial)}
        table.add_row(*(Text(text, styles.get(c.header, "")) for c, text in texts.items()))
    console.print(table)
    left_out = [column.header for column in columns if column not in shown]
    if left_out:
        console.print(f"(not shown, for lack of width: {', '.join(left_out)})")


def _fitting(columns: Sequence[Column], widths: Mapping[Column, int], room: int) -> list[Column]:
    """The columns that a terminal has room for, those that can be spared leaving first."""
    shown = list(columns)
    for column in sorted(columns, key=lambda column: -column.spare):
        if column.spare and _needed(shown, widths) > room:
            shown.remove(column)
    return shown


def _needed(columns: Sequence[Column], widths: Mapping[Column, int]) -> int:
    return sum(_least(column, widths) + GAP for column in columns) - GAP


def _least(column: Column, widths: Mapping[Column, int]) -> int:
    return min(widths[column], FOLDED) if column.folds else widths[column]


def _style(trial: Trial) -> str:
    return _STYLES.get(trial.status, "red")


def _print_failures(console: Console, failed: Sequence[Trial]) -> None:
    """What failed, with those that failed in the same way told once."""
    from rich.text import Text

    alike: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in failed:
        alike.setdefault((trial.status, trial.stage, trial.message), []).append(trial)
    for (status, stage, message), trials in alike.items():
        names = "; ".join(subject_text(trial) for trial in trials[:SUBJECTS])
        more = f"; and {len(trials) - SUBJECTS} more" if len(trials) > SUBJECTS else ""
        where = f" in stage {stage}" if stage else ""
        styled = (status, _style(trials[0]))
        console.print(Text.assemble(styled, f"{where}: {names}{more}"))
        for line in _first_lines(message or trials[0].stderr):
            console.print(f"    {line}")


def _first_lines(text: str) -> list[str]:
    lines = text.strip().splitlines()
    if len(lines) <= MESSAGE_LINES:
        return lines
    left = len(lines) - MESSAGE_LINES
    return [*lines[:MESSAGE_LINES], f"... {count(left, 'more line')}; all of it with output=json"]
