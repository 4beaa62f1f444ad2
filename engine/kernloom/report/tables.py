"""Trials as tables for people, on a terminal or in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TextIO

from kernloom.base.units import count, time_text
from kernloom.config.accelerator import OVERRIDDEN, PROVENANCE
from kernloom.measure.drift import DRIFT, looked
from kernloom.measure.ranking import FAULTS, WITH_FAULTS, is_sanitized, standings
from kernloom.measure.trial import Trial
from kernloom.report.columns import (
    Column,
    SamplesOf,
    results_columns,
    run_columns,
    status_style,
    subjects_text,
)
from kernloom.report.page import WHOLE_ROW, Heading, Page
from kernloom.report.questions import Answer, cell_text
from kernloom.report.similar import SimilarItems, group_similar
from kernloom.report.topology import counts_text

MESSAGE_LINES = 12
NUMBERED = ("wrong", "out_of_bounds", "crashed")
"""Statuses whose messages name a location."""
SANITIZED_NOTE = (
    "note: times with a sanitizer mean nothing: those trials are not ranked and have no roof"
)
MAX_FAULTS_LISTED = 5
"""Limit of injected faults that a note lists."""
MAX_FAILURES_LISTED = 5
"""Limit of failures that are listed one by one."""


def print_run(
    trials: Sequence[Trial],
    build: Mapping[str, Any],
    file: TextIO,
    samples_of: SamplesOf = attrgetter("samples"),
) -> None:
    """Print the table of a run or sweep, failures, warnings, and one closing line.

    `samples_of` is called only where samples are drawn, which needs a terminal.
    """
    page = Page(file)
    standing = standings(trials)
    best = {id for id, found in standing.items() if found.best}
    columns = run_columns(trials, standing, samples_of if page.draws else None)
    _table(page, trials, columns, lambda trial: "bold" if trial.id in best else "")
    _failures(page, trials)
    _warnings(page, trials)
    if any(trial.good and is_sanitized(trial) for trial in trials):
        page.line(SANITIZED_NOTE)
    for note in (*fault_notes(trials), *provenance_notes(trials), *looked_notes(trials)):
        page.line(note)
    page.line(closing_line(trials, build))


def fault_notes(trials: Iterable[Trial]) -> list[str]:
    """A note on the trials with injected faults; empty without any."""
    faults = dict.fromkeys(f for trial in trials if (f := trial.conditions.get(FAULTS)))
    if not faults:
        return []
    more = len(faults) - MAX_FAULTS_LISTED
    listed = [*list(faults)[:MAX_FAULTS_LISTED], *([f"and {more} more"] if more > 0 else [])]
    return [f"note: {WITH_FAULTS}, so not ranked: {'; '.join(listed)}"]


def looked_notes(trials: Iterable[Trial]) -> list[str]:
    """For how long trials of several rounds were looked at; empty without any."""
    seconds: list[float] = []
    rounds: list[int] = []
    drift = False
    for trial in trials:
        look, number = looked(trial.conditions), trial.metrics.get("processes", 1)
        if look and trial.good and number > 1:
            seconds.append((look[1] - look[0]).total_seconds())
            rounds.append(int(number))
            drift = drift or DRIFT in trial.metrics
    if not seconds:
        return []
    span = [f"{second:.1f}" for second in (min(seconds), max(seconds))]
    number = [str(value) for value in (min(rounds), max(rounds))]
    allowing = "; intervals allow for drift from one minute to the next" if drift else ""
    span_text, number_text = (" to ".join(dict.fromkeys(ends)) for ends in (span, number))
    return [f"note: looked for {span_text} s, in {number_text} rounds{allowing}"]


def provenance_notes(trials: Iterable[Trial]) -> list[str]:
    """On which arch data the virtual times of each target rest."""
    by_target: dict[tuple[str, str], dict[str, None]] = {}
    for trial in trials:
        counts = trial.conditions.get(PROVENANCE)
        if trial.good and counts:
            keys = trial.conditions.get(OVERRIDDEN, ())
            by_target.setdefault((trial.target, counts_text(counts)), {}).update(
                dict.fromkeys(keys)
            )
    return [
        f"note: virtual times on {target} rest on arch data: {counts}"
        + (f" ({', '.join(keys)})" if keys else "")
        for (target, counts), keys in by_target.items()
    ]


def print_results(trials: Sequence[Trial], file: TextIO) -> None:
    """Print the table of a query, with one line per failure."""
    page = Page(file)
    _table(page, trials, results_columns(trials))
    page.line(count(len(trials), "trial"))


def print_answer(answer: Answer, file: TextIO) -> None:
    """Print rows of chosen keys; numbers are right-aligned."""
    page = Page(file)
    texts = [
        [
            cell_text(value, metric, unit=metric != heading)
            for value, metric, heading in zip(row, metrics, answer.headings, strict=True)
        ]
        for row, metrics in zip(answer.rows, answer.metrics, strict=True)
    ]
    headings = [
        Heading(name, number=_numeric(row[at] for row in answer.rows), folds=True)
        for at, name in enumerate(answer.headings)
    ]
    page.table(headings, texts)
    page.line(answer.note or count(len(answer.rows), "row"))


def _numeric(values: Iterable[Any]) -> bool:
    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float}


def print_failures(trials: Sequence[Trial], file: TextIO) -> None:
    """Print the failures of these trials."""
    _failures(Page(file), trials)


def print_warnings(trials: Sequence[Trial], file: TextIO) -> None:
    """Print the warnings of these trials."""
    _warnings(Page(file), trials)


def closing_line(trials: Sequence[Trial], build: Mapping[str, Any]) -> str:
    """`6 verified, 0 failed; built 2, cached 4 in 1.3 s`."""
    good = same = reused = unconverged = 0
    for trial in trials:
        good += trial.good
        same += trial.same
        reused += trial.reused and not trial.same
        unconverged += trial.good and trial.status == "unconverged"
    words = [f"{good} verified", f"{len(trials) - good} failed{_kinds(trials)}"]
    if unconverged:
        words.append(f"{unconverged} unconverged")
    if reused:
        words.append(f"{reused} from the store")
    if same:
        words.append(f"{same} the same as another point")
    seconds = time_text(float(build.get("seconds", 0)) * 1e9) if build.get("seconds") else "0 s"
    built = f"built {build.get('built', 0)}, cached {build.get('cached', 0)} in {seconds}"
    runs = ", 1 SCons run" if build.get("scons") else ""
    return f"{', '.join(words)}; {built}{runs}"


def _kinds(trials: Sequence[Trial]) -> str:
    """` (2 wrong, 1 timeout)`, if several failed, in order of first appearance."""
    failed = Counter(trial.status for trial in trials if not trial.good)
    if failed.total() < 2:
        return ""
    return f" ({', '.join(f'{number} {status}' for status, number in failed.items())})"


def _table(
    page: Page,
    trials: Sequence[Trial],
    columns: Sequence[Column],
    row_style: Callable[[Trial], str] = lambda trial: "",
) -> None:
    # One by one: a sweep may have many thousands.
    rows = ([column.cell(trial) for column in columns] for trial in trials)
    styles = (
        {column.header: column.style(trial) for column in columns} | {WHOLE_ROW: row_style(trial)}
        for trial in trials
    )
    page.table([column.heading for column in columns], rows, styles)


def _failures(page: Page, trials: Sequence[Trial]) -> None:
    """Print failures, similar ones once."""
    failed = (trial for trial in trials if not trial.good)
    for same in group_similar(failed, _failed_alike(trials), _said):
        first = same.first[0]
        where = f" in stage {first.stage}" if first.stage else ""
        names = _names(same.first, same.count)
        page.line(f"{where}: {names}", mark=first.status, style=status_style(first))
        _tell(page, same)


def _warnings(page: Page, trials: Sequence[Trial]) -> None:
    """Print warnings, each once."""
    given = ((trial, text) for trial in trials for text in trial.warnings)
    for same in group_similar(given, lambda warning: None, lambda warning: warning[1]):
        everyone = len(trials) > 1 and same.count == len(trials)
        warned = [trial for trial, _ in same.first]
        names = f"all {len(trials)} trials" if everyone else _names(warned, same.count)
        page.line(f": {names}", mark="warning", style="yellow")
        _tell(page, same)


def _names(first: Sequence[Trial], count: int) -> str:
    more = f"; and {count - len(first)} more" if count > len(first) else ""
    return subjects_text(first) + more


def _tell(page: Page, same: SimilarItems[Any]) -> None:
    """Print the first of a group of similar messages."""
    for line in _first_lines(same.message):
        page.line(line, indent=4)
    if same.differ:
        page.line("(this is the first; the others differ only in numbers or paths)", indent=4)


def _failed_alike(trials: Sequence[Trial]) -> Callable[[Trial], Hashable]:
    """Returns the grouping key: a few failures are listed one by one, because their numbers matter;
    of many, similar ones once."""
    counts = Counter((trial.status, trial.stage) for trial in trials if not trial.good)

    def key(trial: Trial) -> Hashable:
        kind = (trial.status, trial.stage)
        few = trial.status in NUMBERED and counts[kind] <= MAX_FAILURES_LISTED
        return (*kind, _said(trial)) if few else kind

    return key


def _said(trial: Trial) -> str:
    return trial.message or trial.stderr


def _first_lines(text: str) -> list[str]:
    lines = text.strip().splitlines()
    if len(lines) <= MESSAGE_LINES:
        return lines
    left = len(lines) - MESSAGE_LINES
    return [*lines[:MESSAGE_LINES], f"... {count(left, 'more line')}; all of it with output=json"]
