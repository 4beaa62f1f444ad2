"""SVG pictures of boxes, lines and texts; the same input gives the same bytes."""

from __future__ import annotations

from html import escape

FONT = "ui-sans-serif, system-ui, sans-serif"
INK, LINE, PAPER = "#1f2933", "#9aa5b1", "#ffffff"


def number(value: float) -> str:
    """At most one decimal, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


class Picture:
    """A picture to which parts are added from back to front."""

    def __init__(self, width: float, height: float, title: str) -> None:
        size = f"{number(width)} {number(height)}"
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
            f'font-family="{FONT}" font-size="12" fill="{INK}">',
            f"<title>{escape(title)}</title>",
        ]
        self.box(0, 0, width, height, fill=PAPER, line="none")

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        line: str = LINE,
        tip: str = "",
    ) -> None:
        place = f'x="{number(x)}" y="{number(y)}"'
        size = f'width="{number(width)}" height="{number(height)}" rx="2"'
        shape = f'<rect {place} {size} fill="{fill}" stroke="{line}"'
        self._parts.append(f"{shape}><title>{escape(tip)}</title></rect>" if tip else f"{shape}/>")

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        ends = " ".join(
            f'{name}="{number(value)}"'
            for name, value in (("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2))
        )
        self._parts.append(f'<line {ends} stroke="{LINE}"/>')

    def text(
        self, x: float, y: float, text: str, *, middle: bool = False, bold: bool = False
    ) -> None:
        anchor = ' text-anchor="middle"' if middle else ""
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{number(x)}" y="{number(y)}"'
        self._parts.append(f"<text {place}{anchor}{weight}>{escape(text)}</text>")

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])
