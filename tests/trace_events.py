"""Traces as the Trace Event Format documents them, and as Perfetto reads them."""

from __future__ import annotations

import json
from typing import Any

UNITS = ("ms", "ns")
NAMES = ("process_name", "thread_name")
"""Metadata events that give processes and threads their names."""


def checked_slices(trace: bytes) -> list[dict[str, Any]]:
    """The slices of a trace, after a check of every event."""
    document = json.loads(trace)
    assert document.keys() == {"displayTimeUnit", "traceEvents"}
    assert document["displayTimeUnit"] in UNITS
    named: set[tuple[str, int, int]] = set()
    slices = []
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"], event
        assert type(event["pid"]) is int and type(event["tid"]) is int, event
        if event["ph"] == "M":
            named.add(_name(event))
        elif event["ph"] == "X":
            _check_slice(event, named)
            slices.append(event)
        else:
            _check_mark(event, named)
    _check_nesting(slices)
    return slices


def _name(event: dict[str, Any]) -> tuple[str, int, int]:
    assert event.keys() == {"ph", "name", "pid", "tid", "args"}, event
    assert event["name"] in NAMES, event
    assert isinstance(event["args"]["name"], str) and event["args"]["name"], event
    return event["name"], event["pid"], event["tid"]


def _check_slice(event: dict[str, Any], named: set[tuple[str, int, int]]) -> None:
    assert event["ph"] == "X", event
    assert event.keys() - {"args"} == {"ph", "name", "pid", "tid", "ts", "dur"}, event
    for key in ("ts", "dur"):
        assert isinstance(event[key], int | float) and event[key] >= 0, event
    assert isinstance(event.get("args", {}), dict), event
    # Names come before what they name.
    assert ("process_name", event["pid"], 0) in named, event
    assert ("thread_name", event["pid"], event["tid"]) in named, event


def _check_mark(event: dict[str, Any], named: set[tuple[str, int, int]]) -> None:
    """An end of an arrow, or a counter."""
    keys = {"C": {"args"}, "s": {"id", "cat"}, "f": {"id", "cat", "bp"}}
    assert event.keys() == {"ph", "name", "pid", "tid", "ts"} | keys[event["ph"]], event
    assert ("process_name", event["pid"], 0) in named, event
    if event["ph"] != "C":
        assert ("thread_name", event["pid"], event["tid"]) in named, event


def _check_nesting(slices: list[dict[str, Any]]) -> None:
    """On a thread, slices nest or are apart, in the whole nanoseconds that Perfetto rounds times
    and durations down to, each by itself: it does not show others where they belong."""
    threads: dict[tuple[int, int], list[int]] = {}
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        begin = int(event["ts"] * 1000.0)
        end = begin + int(event["dur"] * 1000.0)
        enclosing = threads.setdefault((event["pid"], event["tid"]), [])
        while enclosing and enclosing[-1] <= begin:
            enclosing.pop()
        assert not enclosing or end <= enclosing[-1], event
        enclosing.append(end)
