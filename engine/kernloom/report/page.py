"""Lines and tables: coloured and fitted to the width on a terminal, plain and complete in a
file."""

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
"""Minimal width of a column that wraps, if its content needs that much."""
WHOLE_ROW = ""
"""Key of the style that applies to all cells of a row."""


@dataclass(frozen=True)
class Heading:
    """The heading of a column, and the layout of its cells."""

    text: str
    number: bool = False
    folds: bool = False
    """Cells may wrap on a narrow terminal."""
    spare: int = 0
    """Priority for omission on a narrow terminal, the largest first; 0: never omitted."""


class Page:
    """The output of a report."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._console = _console(file) if file.isatty() else None

    @property
    def draws(self) -> bool:
        """Whether it can show graphics: a terminal with UTF-8."""
        return self._console is not None and self._console.encoding.startswith("utf")

    def line(self, text: str, *, mark: str = "", style: str = "", indent: int = 0) -> None:
        """Print a line, preceded by a `mark` in its own style."""
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
        """Print rows of cells below their headings; each row has styles, by heading or for
        WHOLE_ROW, which are read only for a terminal."""
        # Before measuring widths, because an escaped control character is wider.
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
    """Print plain rows with their keys as headers; empty columns are left out."""
    names = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    headings = [Heading(name, folds=True) for name in names]
    Page(file).table(headings, [[row[name] for name in names] for row in rows])


def _plain(row: Sequence[str], headings: Sequence[Heading], widths: Sequence[int]) -> str:
    """The cells in their columns, not truncated, without trailing spaces."""
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
    """The columns that fit a terminal; those with the highest priority for omission go first.

    Among equal priorities the last goes first. Omitting a wide column may make room for others.
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
