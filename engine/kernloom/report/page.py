"""Lines and tables: on a terminal coloured and within its width, in a file plain and whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from kernloom.base.spool import Spool
from kernloom.base.visible_text import styled, visible, visible_line

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
"""Spaces between columns."""
FOLDED = 24
"""What a column that folds gets at least, if it wants that much."""
WHOLE_ROW = ""
"""Among the styles of a row, the one of all its cells."""


@dataclass(frozen=True)
class Heading:
    """The top of a column, and how the cells below it are laid out."""

    text: str
    number: bool = False
    folds: bool = False
    """May take several lines where the terminal is narrow."""
    spare: int = 0
    """Left out of a terminal that is too narrow, the largest first; 0: never."""


class Page:
    """Where a report is written."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._console = _console(file) if file.isatty() else None

    @property
    def draws(self) -> bool:
        """Whether it shows more than letters: a terminal that takes any character."""
        return self._console is not None and self._console.encoding.startswith("utf")

    def line(self, text: str, *, mark: str = "", style: str = "", indent: int = 0) -> None:
        """A line, opened by a `mark` in a style of its own."""
        text, mark = visible_line(text), visible_line(mark)
        if self._console is None:
            print(" " * indent + mark + text, file=self._file)
            return
        from rich.padding import Padding
        from rich.text import Text

        line = Text.assemble((mark, style), text)
        indented = Padding(line, (0, 0, 0, indent), expand=False)
        self._console.print(indented if indent else line)

    def table(
        self,
        headings: Sequence[Heading],
        rows: Iterable[Sequence[str]],
        styles: Iterable[Mapping[str, str]] = (),
    ) -> None:
        """Rows of cells below their headings; each row has styles, by heading or for WHOLE_ROW,
        which only a terminal asks for."""
        # Before their widths are taken, since a visible control character is wider.
        headings = [replace(heading, text=visible(heading.text)) for heading in headings]
        widths = [len(heading.text) for heading in headings]
        cells: Spool[list[str]] = Spool()
        for row in rows:
            shown = [visible(" ".join(cell.rstrip("\n").split("\n"))) for cell in row]
            widths = list(map(max, widths, map(len, shown)))
            cells.append(shown)
        if not cells:
            return
        if self._console is None:
            for row in itertools.chain([[heading.text for heading in headings]], cells):
                print(_plain(row, headings, widths), file=self._file)
        else:
            _rich_table(self._console, headings, cells, widths, list(styles) or [{}] * len(cells))


def print_rows(rows: Sequence[Mapping[str, str]], file: TextIO) -> None:
    """Plain rows under their keys as headers; columns that are empty everywhere are left out."""
    names = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    headings = [Heading(name, folds=True) for name in names]
    Page(file).table(headings, [[row[name] for name in names] for row in rows])


def _plain(row: Sequence[str], headings: Sequence[Heading], widths: Sequence[int]) -> str:
    """The cells in their columns, nothing cut off and nothing behind the last of them."""
    padded = (
        cell.rjust(width) if heading.number else cell.ljust(width)
        for cell, heading, width in zip(row, headings, widths, strict=True)
    )
    return (" " * GAP).join(padded).rstrip()


def _console(file: TextIO) -> Console:
    from rich.console import Console

    return Console(file=styled(file), markup=False, highlight=False, emoji=False)


def _rich_table(
    console: Console,
    headings: Sequence[Heading],
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    styles: Sequence[Mapping[str, str]],
) -> None:
    from rich.table import Table
    from rich.text import Text

    shown = _fitting(headings, widths, console.width)
    fits = _needed(headings, widths, shown) <= console.width
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for number in shown:
        heading = headings[number]
        table.add_column(
            heading.text,
            justify="right" if heading.number else "left",
            overflow="fold",
            min_width=_least(heading, widths[number]) if fits else None,
        )
    for row, chosen in zip(rows, styles, strict=True):
        cells = (Text(row[n], chosen.get(headings[n].text, "")) for n in shown)
        table.add_row(*cells, style=chosen.get(WHOLE_ROW))
    console.print(table)
    left_out = [heading.text for n, heading in enumerate(headings) if n not in shown]
    if left_out:
        console.print(f"(not shown, for lack of width: {', '.join(left_out)})")


def _fitting(headings: Sequence[Heading], widths: Sequence[int], room: int) -> list[int]:
    """The columns that a terminal has room for, those that can be spared leaving first.

    Of those that can be spared alike, the last. A wide one that leaves may make room for others.
    """
    shown = list(range(len(headings)))
    left: list[int] = []
    for number in sorted(shown, key=lambda number: (-headings[number].spare, -number)):
        if headings[number].spare and _needed(headings, widths, shown) > room:
            shown.remove(number)
            left.append(number)
    for number in reversed(left):
        if _needed(headings, widths, [*shown, number]) <= room:
            shown.append(number)
    return sorted(shown)


def _needed(headings: Sequence[Heading], widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(_least(headings[n], widths[n]) + GAP for n in shown) - GAP


def _least(heading: Heading, width: int) -> int:
    return min(width, FOLDED) if heading.folds else width
