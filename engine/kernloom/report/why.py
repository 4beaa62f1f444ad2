"""Why trials took as long as they did, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.base.units import count, time_text
from kernloom.measure.trial import Trial
from kernloom.measure.why import WHY, Bound, Insight
from kernloom.report.page import Heading, Page

KINDS = {"task": "task", "scheduler": "scheduler", "submit": "submit", "transfer": "launch"}
MAX_CAUSES = 4
"""Limit of causes that a line lists."""


def print_insight(insight: Insight, trials: Sequence[Trial], file: TextIO) -> None:
    page = Page(file)
    for trial in trials:
        if insight.why and trial.good:
            _why(page, trial)
        if bounds := insight.bounds.get(trial.id):
            _bounds(page, trial, bounds)
        if found := insight.pes.get(trial.id):
            _pes(page, trial, found)


def _why(page: Page, trial: Trial) -> None:
    why = trial.conditions.get(WHY)
    page.line("")
    if not why:
        page.line(f"{_title(trial)}: nothing is known about its time; repeat it with rerun=all")
        return
    whole = why["virtual_ps"]
    page.line(f"{_title(trial)}: {_time(whole)}, limited by {trial.conditions.get('limiter')}")
    pes = count(why["pes"], "PE")
    page.line(f"time of {pes}: {_shares(why['causes'], whole * why['pes'])}", indent=2)
    metrics = trial.metrics
    used = (
        f"{kind} {metrics[key]:.0%}"
        for kind, key in (("matrix", "utilisation_matrix"), ("vector", "utilisation_vector"))
        if key in metrics
    )
    overhead = f"overhead {why['overhead']:.1%}"
    page.line(f"utilisation: {', '.join(used)}; {overhead}", indent=2)
    page.line(f"critical path: {_shares(why['path_causes'], whole)}", indent=2)
    rows = [
        [
            f"  {KINDS.get(one['kind'], one['kind'])}",
            one["name"],
            str(one["count"]),
            _time(one["ps"]),
            f"{one['ps'] / whole:.1%}" if whole else "",
            _shares(one.get("causes", {}), one["ps"]),
        ]
        for one in why["path"]
    ]
    headings = [
        Heading("  stretch"),
        Heading("of"),
        Heading("times", number=True),
        Heading("virtual", number=True),
        Heading("share", number=True),
        Heading("spent on", folds=True),
    ]
    page.table(headings, rows)
    _peaks(page, why)


def _peaks(page: Page, why: Mapping[str, Any]) -> None:
    if not why.get("peaks"):
        return
    rows = [
        [f"  {key}", f"{peak:,}", f"{size:,}" if size else "", f"{advised:,}" if advised else ""]
        for key, (peak, size, advised) in why["peaks"].items()
    ]
    numbers = (Heading(text, number=True) for text in ("peak", "size", "advised"))
    page.table([Heading("  resource"), *numbers], rows)
    for depth, (scopes, tasks, nbytes) in why.get("scopes", {}).items():
        most = f"at most {count(tasks, 'task')} and {nbytes:,} B of outputs in one"
        page.line(f"{count(scopes, 'scope')} of depth {depth}: {most}", indent=2)


def _bounds(page: Page, trial: Trial, bounds: Sequence[Bound]) -> None:
    page.line("")
    page.line(f"{_title(trial)}: what if a resource cost nothing?")
    rows = [
        [f"  {one.resource}", time_text(one.virtual_ns), f"{one.factor:.3g}x"]
        for one in bounds
        if not one.message
    ]
    page.table(
        [Heading("  without"), Heading("virtual", number=True), Heading("faster", number=True)],
        rows,
    )
    for one in bounds:
        if one.message:
            page.line(f"{one.resource}: {one.message}", indent=2)


def _pes(page: Page, trial: Trial, found: Mapping[str, Any]) -> None:
    page.line("")
    page.line(f"{_title(trial)}: time of every PE")
    rows = [
        [f"  {pe}", _shares(dict(zip(found["causes"], spent, strict=True)), sum(spent))]
        for pe, spent in found["pes"].items()
    ]
    page.table([Heading("  PE"), Heading("spent on", folds=True)], rows)


def _title(trial: Trial) -> str:
    point = "".join(f" {key}={value}" for key, value in trial.point.items())
    return f"{trial.workload} on {trial.target}{point}"


def _shares(spent: Mapping[str, int], whole: int) -> str:
    """`hbm 52%, compute.matrix 31%`, largest first."""
    ranked = sorted(spent.items(), key=lambda item: -item[1])
    listed = [f"{name} {value / whole:.0%}" for name, value in ranked if whole and value]
    more = len(listed) - MAX_CAUSES
    return ", ".join([*listed[:MAX_CAUSES], *([f"{more} more"] if more > 0 else [])])


def _time(ps: int) -> str:
    return time_text(ps / 1000)
