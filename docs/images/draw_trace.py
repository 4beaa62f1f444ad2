"""Draws the last launch in a trace of an accelerator: the whole way, and the task enlarged.

kernloom run target=a5 workload=axpy case=small trace=trace.json
python draw_trace.py trace.json trace.svg
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svg import Picture

WIDTH, LEFT, ROW = 900, 150, 24
PS_PER_US, PS_PER_NS = 1_000_000, 1000
LETTER = 6.8
"""Width of a letter, as a guess that decides whether a label fits."""
COLOURS = {
    "submit": "#ffd8a8",
    "switch": "#eebefa",
    "complete": "#eebefa",
    "issue": "#ffc9c9",
    "translate": "#ffa8a8",
    "latency": "#fff3bf",
    "transfer": "#a5d8ff",
    "load": "#a5d8ff",
    "store": "#b2f2bb",
}
"""Name of a slice -> colour; messages and units have others."""
UNITS = ("matrix", "vector", "scalar")
COMPUTE, MESSAGE, TASK = "#8ce99a", "#c5f6fa", "#e9ecef"
WAIT = "wait: "
"""Beginning of the names of slices in which a PE has nothing to do; they are not drawn."""
LEGEND = {
    "task": TASK,
    **{name: COLOURS[name] for name in ("issue", "translate", "latency")},
    "transfer, load": COLOURS["transfer"],
    "store": COLOURS["store"],
    "compute": COMPUTE,
    "message": MESSAGE,
}


@dataclass(frozen=True)
class Slice:
    """Something that a lane did, in picoseconds: whole numbers, so that ends can be compared."""

    lane: str
    name: str
    start: int
    length: int
    task: bool = False

    @property
    def end(self) -> int:
        return self.start + self.length


def slices_of(trace: Mapping[str, Any]) -> list[Slice]:
    names: dict[tuple[Any, ...], str] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            key = (
                (event["pid"],) if event["name"] == "process_name" else (event["pid"], event["tid"])
            )
            names[key] = event["args"]["name"]
    return [
        Slice(
            _lane(names[event["pid"],], names[event["pid"], event["tid"]]),
            event["name"],
            round(event["ts"] * PS_PER_US),
            round(event["dur"] * PS_PER_US),
            "task" in event.get("args", {}),
        )
        for event in trace["traceEvents"]
        if event["ph"] == "X" and not event["name"].startswith(WAIT)
    ]


def _lane(process: str, thread: str) -> str:
    return thread if process in ("host", "sip 0") else f"{process.removeprefix('sip 0 ')} {thread}"


def picture(trace: Mapping[str, Any], title: str) -> str:
    found = slices_of(trace)
    start = max(one.start for one in found if one.name == "submit")
    # What follows the answer reads the results.
    end = min(one.end for one in found if one.start >= start and one.lane == "pcie up")
    launch = [one for one in found if one.start >= start and one.end <= end]
    task = next(one for one in launch if one.task)
    inside = [one for one in launch if task.start <= one.start and one.end <= task.end]
    all_lanes, lanes = _lanes(launch), _lanes(inside)
    upper = 70 + ROW * len(all_lanes)
    height = upper + 76 + ROW * len(lanes) + 40
    drawing = Picture(WIDTH, height, title)
    drawing.text(20, 28, title, bold=True)
    _panel(drawing, 44, launch, all_lanes, (start, end), start)
    drawing.text(20, upper + 28, f"the task '{task.name}', enlarged", bold=True)
    _panel(drawing, upper + 44, inside, lanes, (task.start, task.end), start)
    for place, (name, colour) in enumerate(LEGEND.items()):
        drawing.box(20 + 105 * place, height - 32, 14, 14, fill=colour)
        drawing.text(40 + 105 * place, height - 20, name)
    return drawing.svg()


def _lanes(slices: Sequence[Slice]) -> list[str]:
    """The lanes in the order in which they begin to work."""
    return list(dict.fromkeys(one.lane for one in sorted(slices, key=lambda one: one.start)))


def _panel(
    drawing: Picture,
    top: float,
    slices: Sequence[Slice],
    lanes: Sequence[str],
    span: tuple[int, int],
    zero: int,
) -> None:
    """Lanes from `top`, with the time since `zero` above them."""
    first, last = span
    scale = (WIDTH - LEFT - 30) / (last - first)
    step = _step((last - first) / 8)
    bottom = top + 14 + ROW * len(lanes)
    for number in range(math.ceil((first - zero) / step), math.floor((last - zero) / step) + 1):
        x = LEFT + (zero + number * step - first) * scale
        drawing.line(x, top + 8, x, bottom)
        drawing.text(x, top + 4, f"{number * step // PS_PER_NS} ns", middle=True)
    for place, lane in enumerate(lanes):
        y = top + 14 + ROW * place
        drawing.text(20, y + 15, lane)
        equal = Counter(one for one in slices if one.lane == lane)
        # Long ones first: what happens within them is drawn upon them.
        for one, times in sorted(equal.items(), key=lambda found: -found[0].length):
            width = max(one.length * scale, 1)
            x = LEFT + (one.start - first) * scale
            colour = _colour(one)
            label = one.name if times == 1 else f"{times} × {one.name}"
            tip = f"{label}, {one.length / PS_PER_NS:.0f} ns"
            drawing.box(x, y, width, ROW - 6, fill=colour, tip=tip)
            if LETTER * len(label) < width and not _covered(one, slices):
                drawing.text(x + width / 2, y + 13, label, middle=True)


def _colour(one: Slice) -> str:
    if one.task:
        return TASK
    return COLOURS.get(one.name) or (COMPUTE if one.name in UNITS else MESSAGE)


def _covered(one: Slice, slices: Sequence[Slice]) -> bool:
    """Whether the middle of a slice, where its name would be, is drawn upon by a shorter one."""
    middle = (one.start + one.end) / 2
    return any(
        other.lane == one.lane and other.start <= middle <= other.end and other.length < one.length
        for other in slices
    )


def _step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is not less."""
    power = 10 ** math.floor(math.log10(least))
    return next(int(power * digit) for digit in (1, 2, 5, 10) if power * digit >= least)


if __name__ == "__main__":
    traced = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    text = picture(traced, "One launch of axpy (small) on a5")
    Path(sys.argv[2]).write_text(text, encoding="utf-8")
