"""A comparison as a table for people, a document, and annotations for CI."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TextIO

from kernloom.base.gauges import GAUGES, TIME, Gauge
from kernloom.base.machine import machine_class
from kernloom.measure.comparison import Compared, Comparison, Entry
from kernloom.report.documents import plain
from kernloom.report.page import Heading, Page

_STYLES = {"faster": "green", "slower": "red", "equivalent": "", "inconclusive": "yellow"}


def print_comparisons(found: Compared, file: TextIO) -> None:
    """Print one row per contender, with its verdict against the first, and then notes."""
    page = Page(file)
    judged = {comparison.b: comparison for comparison in found.comparisons}
    gauges = _gauges(found)
    headings = [
        Heading("what", folds=True),
        *(Heading(gauge.heading, number=True) for gauge in gauges),
        Heading("speedup", number=True),
        Heading("interval"),
        Heading("verdict"),
        Heading("rounds", number=True, spare=1),
    ]
    rows = [_row(entry, judged.get(entry.name), gauges) for entry in found.entries]
    styles = [{"verdict": _STYLES.get(row[-2], "red")} for row in rows]
    shown = [n for n, heading in enumerate(headings) if n == 0 or any(row[n] for row in rows)]
    page.table([headings[n] for n in shown], [[row[n] for n in shown] for row in rows], styles)
    if found.control:
        page.line(f"control: the first against itself is {verdict_text(found.control)}")
    for entry in found.entries:
        if entry.status != "ok":
            page.line(f": {entry.name}", mark=entry.status, style="red")
            for line in entry.message.strip().splitlines()[:12]:
                page.line(f"    {line}")
    for note in found.notes:
        page.line(f": {note}", mark="note", style="yellow")


def _gauges(found: Compared) -> tuple[Gauge, ...]:
    return GAUGES.all(name for entry in found.entries for name in entry.metrics)


def _row(entry: Entry, comparison: Comparison | None, gauges: Sequence[Gauge]) -> list[str]:
    row = [entry.name, *(gauge.with_interval(entry.metrics) for gauge in gauges)]
    if comparison is None:
        return [*row, "", "", "" if entry.status == "ok" else entry.status, ""]
    interval = f"{comparison.ci_low:.3f} .. {comparison.ci_high:.3f}"
    if comparison.ci_low == comparison.ci_high:
        interval = "exact" if any(g.exact and g.name in entry.metrics for g in gauges) else ""
    return [
        *row,
        f"{comparison.speedup:.3f}×",
        interval,
        comparison.verdict,
        str(comparison.rounds),
    ]


def verdict_text(comparison: Comparison) -> str:
    """`3.2% slower (interval 0.961 .. 0.975, 12 rounds)`."""
    change = comparison.speedup - 1 if comparison.speedup >= 1 else 1 / comparison.speedup - 1
    words = {
        "faster": f"{change:.1%} faster",
        "slower": f"{change:.1%} slower",
        "equivalent": "equivalent",
        "inconclusive": "inconclusive",
    }[comparison.verdict]
    return (
        f"{words} (speedup {comparison.speedup:.3f}, interval {comparison.ci_low:.3f} .. "
        f"{comparison.ci_high:.3f}, {comparison.rounds} rounds)"
    )


def comparisons_document(found: Compared) -> dict[str, Any]:
    document = {
        "comparisons": [vars(comparison) for comparison in found.comparisons],
        "contenders": [_entry(entry, found) for entry in found.entries],
        "control": vars(found.control) if found.control else None,
        "clock": found.clock,
        "policy": found.policy,
        "machine": machine_class(),
        "notes": found.notes,
    }
    made: dict[str, Any] = plain(document)
    return made


def _entry(entry: Entry, found: Compared) -> dict[str, Any]:
    usual = (key for gauge in _gauges(found) if gauge.in_every_comparison for key in gauge.keys)
    timed = found.gauge == TIME
    return {
        "name": entry.name,
        "status": entry.status,
        "message": entry.message,
        **{**dict.fromkeys(usual), **entry.metrics},
        "artifacts": entry.artifacts,
        "rounds_ns": entry.rounds if timed else [],
        **({} if timed or found.gauge.exact else {"rounds": entry.rounds}),
    }


def github_lines(found: Compared, failing: Collection[str]) -> list[str]:
    """GitHub workflow commands, which are shown beside a commit."""
    lines = [
        f"::error title=kernloom compare::{_command(f'{entry.name}: {entry.message}')}"
        for entry in found.entries
        if entry.status != "ok"
    ]
    for comparison in found.comparisons:
        if comparison.verdict in failing:
            level = "error"
        elif comparison.verdict in ("slower", "inconclusive"):
            level = "warning"
        else:
            level = "notice"
        text = f"{comparison.b} against {comparison.a}: {verdict_text(comparison)}"
        lines.append(f"::{level} title=kernloom compare::{_command(text)}")
    return lines


def _command(text: str) -> str:
    """Text with line ends and percent signs escaped for workflow commands."""
    return text.strip().replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
