"""Traces in virtual time: written to the user's file, and a digest for the trial."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernloom.base.errors import DeviceError
from kernloom.base.files import canonical_json, write_atomically

MAX_DIGEST = 2048
"""Bytes of a digest as JSON."""
_BEGIN, _END = b'{"displayTimeUnit":"ns","traceEvents":[\n', b"]}\n"
"""Around the events of a trace that has one on each line."""
_SLICE, _NAME = "X", "M"
"""Phases of trace events: a slice, and the name of a process or thread."""


def keep_trace(trace: bytes, path: Path | None) -> dict[str, Any]:
    """Write a trace to a file, if there is one, and return its digest."""
    if not trace:
        raise DeviceError("the device recorded no trace (trace)", status="crashed")
    found = trace_digest(trace)
    if path is not None:
        write_atomically(path, trace)
    return found


def trace_digest(trace: bytes) -> dict[str, Any]:
    """Hash, size, number of slices and tracks, and the busiest tracks, in at most 2 KB."""
    busy: dict[tuple[int, int], float] = {}
    names: dict[tuple[int, int], str] = {}
    slices = 0
    try:
        for event in _events(trace):
            track = (event["pid"], event["tid"])
            if event["ph"] == _SLICE:
                slices += 1
                busy[track] = busy.get(track, 0.0) + float(event["dur"])
            elif event["ph"] == _NAME and event["name"] == "thread_name":
                names[track] = str(event["args"]["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise DeviceError(f"the trace cannot be read: {error}", status="crashed") from None
    digest: dict[str, Any] = {
        "sha256": hashlib.sha256(trace).hexdigest(),
        "bytes": len(trace),
        "slices": slices,
        "tracks": len(busy),
        "busy_us": {},
    }
    # Equal times in the order of their names, so that the digest is the same in every run.
    ranked = sorted(busy, key=lambda track: (-busy[track], names.get(track, ""), track))
    for track in ranked:
        name = f"{track[0]}/{names.get(track, track[1])}"
        more = {**digest, "busy_us": {**digest["busy_us"], name: round(busy[track], 6)}}
        if len(canonical_json(more).encode()) > MAX_DIGEST:
            break
        digest = more
    return digest


def _events(trace: bytes) -> Iterator[dict[str, Any]]:
    """The events of a trace; one with an event on each line is not read as a whole, which would
    take many times its size in memory."""
    if not trace.startswith(_BEGIN) or not trace.endswith(_END):
        document = json.loads(trace)
        yield from document["traceEvents"] if isinstance(document, dict) else document
        return
    start, end = trace.index(b"\n") + 1, len(trace) - len(_END)
    while start < end:
        stop = trace.find(b"\n", start, end)
        line = trace[start : stop if stop >= 0 else end]
        yield json.loads(line.removesuffix(b","))
        start += len(line) + 1
