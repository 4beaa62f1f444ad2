"""A run in virtual time as plain data: its tasks, and the slices of its resources in order."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

_PROCESS = re.compile(r"sip (\d+)(?: cube (\d+))?")
_PE = re.compile(r"pe (\d+) (.*)")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+")
_SLICE = re.compile(r"(-?\d+) (\d+) ([^:]*): (.*)")
WAIT = "wait: "
"""Beginning of the names of slices in which a PE has nothing to do."""
COMPLETE = "complete"
"""Name of the slice in which a PE ends a task."""
_MESSAGE = re.compile(r"(host|control \d+|pe [\d.]+) to (host|control \d+|pe [\d.]+)")
_PACKED_WIDTH = 88
_MAX_UNPACKED = 64 << 20


@dataclass(frozen=True)
class Slice:
    """A stretch of time in which a resource was busy; picoseconds since the launch."""

    start: int
    resource: str
    """`0.0.1 vector`, `0.0.1 dma 0`, `0.0 noc in`, `0 pcie down`, `host`."""
    what: str
    """Its work: `load, 2048 bytes`, `host to control 0, 188 bytes`."""
    length: int

    def line(self) -> str:
        return f"{self.start} {self.length} {self.resource}: {self.what}"

    @classmethod
    def parse(cls, line: str) -> Slice:
        """The inverse of `line`; ValueError for anything else."""
        found = _SLICE.fullmatch(line)
        if found is None:
            raise ValueError(f"'{line}' is no slice")
        return cls(int(found[1]), found[3], found[4], int(found[2]))

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def order(self) -> tuple[int, int, str, str]:
        """By its end: of slices in each other, the innermost is the first that diverges."""
        return (self.end, -self.start, self.resource, self.what)

    @property
    def pe(self) -> str:
        """The address of the PE that it belongs to, or that a message goes to or comes from."""
        found = _ADDRESS.match(self.resource) or _ADDRESS.search(self.what)
        return found[0] if found else ""

    @property
    def text(self) -> str:
        return f"{self.what} on {self.resource}"


@dataclass(frozen=True)
class Timeline:
    """The tasks and all slices of one launch, both in the order of their ends."""

    tasks: tuple[Slice, ...] = ()
    slices: tuple[Slice, ...] = ()


def timeline_of(trace: bytes, virtual_ns: float) -> Timeline:
    """The last launch of a trace, which took `virtual_ns`."""
    events = json.loads(trace)["traceEvents"]
    tracks = _tracks(events)
    busy = [
        event for event in events if event["ph"] == "X" and not str(event["name"]).startswith(WAIT)
    ]
    ends = (_ps(event["ts"]) + _ps(event["dur"]) for event in busy)
    launched = max(ends, default=0) - round(virtual_ns * 1000)
    slices, tasks = [], []
    for event in busy:
        start = _ps(event["ts"]) - launched
        if start < 0:
            continue
        arguments = event.get("args") or {}
        resource = tracks.get((event["pid"], event["tid"]), str(event["tid"]))
        name = str(event["name"])
        if "bytes" in arguments:
            name += f", {arguments['bytes']} bytes"
        found = Slice(start, resource, name, _ps(event["dur"]))
        slices.append(found)
        if "task" in arguments:
            tasks.append(Slice(start, resource, str(arguments["task"]), found.length))
    order = attrgetter("order")
    return Timeline(tuple(sorted(tasks, key=order)), tuple(sorted(slices, key=order)))


def packed(slices: Sequence[Slice]) -> list[str]:
    """Slices as lines of compressed text, a twentieth of their size. Each end is written relative
    to the end before it, since such numbers repeat."""
    if not slices:
        return []
    ends = [0, *(slice.end for slice in slices)]
    lines = [
        f"{end - before} {slice.length} {slice.resource}: {slice.what}"
        for slice, before, end in zip(slices, ends, ends[1:], strict=False)
    ]
    code = base64.b64encode(zlib.compress("\n".join(lines).encode(), 9)).decode("ascii")
    return [code[at : at + _PACKED_WIDTH] for at in range(0, len(code), _PACKED_WIDTH)]


def unpacked(lines: Sequence[str]) -> tuple[Slice, ...]:
    """The inverse of `packed`; ValueError for anything else."""
    if not lines:
        return ()
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(base64.b64decode("".join(lines), validate=True), _MAX_UNPACKED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError("the packed slices are not whole")
    found, end = [], 0
    for line in text.decode().split("\n"):
        slice = Slice.parse(line)
        end += slice.start
        found.append(replace(slice, start=end - slice.length))
    return tuple(found)


def _ps(microseconds: float) -> int:
    return round(microseconds * 1_000_000)


def _tracks(events: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], str]:
    """Track -> the short name of its resource."""
    named = [event for event in events if event["ph"] == "M"]
    processes = {
        event["pid"]: str(event["args"]["name"])
        for event in named
        if event["name"] == "process_name"
    }
    return {
        (event["pid"], event["tid"]): _resource(
            processes.get(event["pid"], ""), str(event["args"]["name"])
        )
        for event in named
        if event["name"] == "thread_name"
    }


def _resource(process: str, thread: str) -> str:
    place = _PROCESS.fullmatch(process)
    if place is None:
        return thread if thread == process else f"{process} {thread}".strip()
    cube = ".".join(part for part in place.groups() if part is not None)
    pe = _PE.fullmatch(thread)
    return f"{cube}.{pe[1]} {pe[2]}" if pe else f"{cube} {thread}"


def first_difference(
    before: Sequence[Slice], now: Sequence[Slice], *, whole: bool = True
) -> tuple[Slice | None, Slice | None] | None:
    """The first slice that is not as it was: before and now, None where it does not exist. Without
    `whole`, `before` is only the beginning."""
    for index, (old, new) in enumerate(zip(before, now, strict=False)):
        if old != new:
            changed = _same_work(old, now[index:])
            if changed != old:
                return old, changed
            return _same_work(new, before[index:]), new
    if len(before) > len(now):
        return before[len(now)], None
    if len(now) > len(before) and whole:
        return None, now[len(before)]
    return None


def _same_work(slice: Slice, others: Iterable[Slice]) -> Slice | None:
    """The first of the others that is the same work of the same resource."""
    work = (slice.resource, slice.what)
    return next((other for other in others if (other.resource, other.what) == work), None)


def difference_text(old: Slice | None, new: Slice | None) -> str:
    """How one slice differs from the other."""
    if old is None or new is None:
        present, change = (new, "is new") if old is None else (old, "is gone")
        return f"{present.text} {change}, at {_ns(present.start)}" if present else ""
    takes = _changed("takes", old.length, new.length) if new.length != old.length else ""
    if new.start == old.start:
        return f"{new.text}, at {_ns(new.start)}, {takes}"
    parts = [_changed("starts at", old.start, new.start), takes]
    return f"{new.text} {' and '.join(filter(None, parts))}"


def _changed(verb: str, old: int, new: int) -> str:
    return f"{verb} {_ns(new)}, not {_ns(old)} ({(new - old) / 1000:+.3f} ns)"


def _ns(picoseconds: int) -> str:
    return f"{picoseconds / 1000:,.3f} ns"


def task_of(slice: Slice, timeline: Timeline) -> Slice | None:
    """The task that a slice of a PE, or a message to or from one, belongs to. None for slices of
    the host and of links, which are not of one PE."""
    tasks = sorted((t for t in timeline.tasks if t.pe == slice.pe), key=attrgetter("start"))
    if slice.pe and _MESSAGE.match(slice.what):
        # A PE is told of its tasks, and answers, in their order.
        route = _route(slice)
        messages = [other for other in timeline.slices if _route(other) == route]
        return dict(zip(messages, tasks, strict=False)).get(slice)
    if slice.what == COMPLETE:
        return next((task for task in reversed(tasks) if task.end <= slice.start), None)
    return next((task for task in tasks if slice.start < task.end), None)


def sender_of(slice: Slice) -> str:
    """Who sent a message; empty if the slice is none."""
    found = _MESSAGE.match(slice.what)
    return found[1] if found else ""


def _route(slice: Slice) -> tuple[str, str]:
    """The link of a message, its sender and its receiver."""
    found = _MESSAGE.match(slice.what)
    return (slice.resource, found[0]) if found else (slice.resource, "")
