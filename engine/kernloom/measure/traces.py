"""Traces in virtual time: written to the user's file, and a digest for the trial."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from kernloom.base.errors import DeviceError
from kernloom.base.files import canonical_json, write_atomically

MAX_DIGEST = 2048
"""Bytes of a digest as JSON."""
_SLICE, _NAME = "X", "M"
"""Phases of trace events: a slice, and the name of a process or thread."""


def keep_trace(trace: bytes, path: Path) -> dict[str, Any]:
    """Write a trace to a file, and return its digest."""
    if not trace:
        raise DeviceError("the device recorded no trace (trace)", status="crashed")
    found = trace_digest(trace)
    write_atomically(path, trace)
    return found


def trace_digest(trace: bytes) -> dict[str, Any]:
    """Hash, size, number of slices and tracks, and the busiest tracks, in at most 2 KB."""
    try:
        document = json.loads(trace)
        events = document["traceEvents"] if isinstance(document, dict) else document
        slices = [event for event in events if event["ph"] == _SLICE]
    except (ValueError, KeyError, TypeError) as error:
        raise DeviceError(f"the trace cannot be read: {error}", status="crashed") from None
    busy: dict[tuple[int, int], float] = {}
    for event in slices:
        track = (event["pid"], event["tid"])
        busy[track] = busy.get(track, 0.0) + float(event["dur"])
    names = {
        (event["pid"], event["tid"]): str(event["args"]["name"])
        for event in events
        if event["ph"] == _NAME and event["name"] == "thread_name"
    }
    digest: dict[str, Any] = {
        "sha256": hashlib.sha256(trace).hexdigest(),
        "bytes": len(trace),
        "slices": len(slices),
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
