"""The live view on a terminal: a bar, failures, and a table of the best points."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernloom.base.visible_text import styled, visible_line

if TYPE_CHECKING:
    from kernloom.cli.progress.tally import Tally

LONG_SWEEP = 20
"""Number of points from which the best ones are shown in a table."""
MIN_HEIGHT = 12
"""Minimal height of a terminal for that table."""
MIN_WIDTH = 60
"""Minimal width of a terminal for a bar."""


class Live:
    """Draws over its previous output. The cursor stays visible, so that the terminal is intact
    however the engine ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = styled(stream)
        self._lines = 0

    def draw(self, tally: Tally) -> None:
        # Created anew, because it reads the terminal's size only once if that is in COLUMNS.
        console = Console(file=self._stream, markup=False, highlight=False, emoji=False)
        # One less than the width: some terminals wrap after a full line.
        console.width = max(1, console.width - 1)
        with console.capture() as capture:
            console.print(view(tally, console.width, console.height))
        text = capture.get()
        self._stream.write(self._erasure() + text)
        self._stream.flush()
        self._lines = text.count("\n")

    def clear(self) -> None:
        if self._lines:
            self._stream.write(self._erasure())
            self._stream.flush()
            self._lines = 0

    def _erasure(self) -> str:
        return f"\r\x1b[{self._lines}A\x1b[J" if self._lines else ""


def view(tally: Tally, width: int, height: int) -> RenderableType:
    """The view's parts, with lines cut to the width."""
    best = [(time, visible_line(point)) for time, point in tally.best()]
    failures = visible_line(tally.failures())
    parts: list[RenderableType] = [_bar(tally, width)]
    said = Text(no_wrap=True, overflow="ellipsis")
    if best:
        said.append("best ", "dim").append(best[0][0], "bold green").append(f"  {best[0][1]}")
    if failures:
        said.append("  " if best else "").append("failed ", "dim").append(failures, "red")
    if best and tally.total >= LONG_SWEEP and height >= MIN_HEIGHT:
        parts.append(_leaders(best))
        said = Text.assemble(("failed ", "dim"), (failures, "red"), no_wrap=True)
        said.overflow = "ellipsis"
        if not failures:
            return Group(*parts)
    if said:
        parts.append(said)
    return Group(*parts)


def _bar(tally: Tally, width: int) -> RenderableType:
    shown = (tally.speed, visible_line(tally.note))
    texts = [f"{tally.done}/{tally.total}", *filter(None, shown)]
    if width < MIN_WIDTH:
        return Text("  ".join([tally.phase, *texts]), no_wrap=True, overflow="ellipsis")
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, min_width=8)
    for _ in texts:
        table.add_column(no_wrap=True, justify="right")
    bar = ProgressBar(total=1.0, completed=tally.fraction)
    table.add_row(Text(tally.phase, "bold"), bar, *map(Text, texts))
    return table


def _leaders(best: list[tuple[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("best", justify="right", no_wrap=True, style="green")
    table.add_column("point", no_wrap=True, overflow="ellipsis")
    for time, point in best:
        table.add_row(Text(time), Text(point, no_wrap=True, overflow="ellipsis"))
    return table
