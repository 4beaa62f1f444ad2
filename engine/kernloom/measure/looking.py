"""A look into one run on an accelerator: its trace, its dependencies, a task that runs again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kernloom.base.errors import ConfigError, DeviceError, nearest
from kernloom.base.files import write_atomically
from kernloom.config.schema import Experiment
from kernloom.device.messages import Documents
from kernloom.measure.traces import keep_trace


@dataclass(frozen=True)
class Seen:
    """What was seen of a run, as the device tells it; empty: not asked for."""

    trace: bytes = b""
    dependencies: bytes = b""
    replay: bytes = b""


class Ran(Protocol):
    """A session after a launch."""

    def trace(self) -> bytes: ...
    def document(self, document: Documents) -> bytes: ...


def look_into(ran: Ran, experiment: Experiment) -> Seen:
    """What an experiment asks for of its last launch. The replay comes last: a trace does not show
    it."""
    return Seen(
        ran.trace() if experiment.trace else b"",
        ran.document(Documents.DEPENDENCIES) if experiment.deps else b"",
        ran.document(Documents.REPLAY) if experiment.replay else b"",
    )


def keep(seen: Seen, experiment: Experiment) -> dict[str, Any]:
    """Write the files that an experiment asks for, and return what its trial keeps of them."""
    found: dict[str, Any] = {}
    if experiment.trace:
        found["trace"] = keep_trace(
            seen.trace, Path(experiment.trace) if experiment.trace_level else None
        )
    if experiment.deps:
        found["deps"] = _edges(seen.dependencies)
        write_atomically(Path(experiment.deps), seen.dependencies)
    if experiment.replay:
        found["replay"] = _replayed(seen.replay, experiment.replay)
    return found


def lines_about(conditions: Mapping[str, Any], experiment: Experiment) -> Iterator[str]:
    """What was written and found, for people; `conditions` are those of the trial."""
    if experiment.trace_level and "trace" in conditions:
        yield f"trace written: {experiment.trace}"
    if "deps" in conditions:
        counts = dict(conditions["deps"])
        tasks, edges = counts.pop("tasks"), sum(counts.values())
        yield f"dependencies written: {experiment.deps} (tasks: {tasks}, edges: {edges})"
    if "replay" in conditions:
        found = conditions["replay"]
        yield f"task {found['task']} '{found['name']}' ran again, with equal results"


def _edges(text: bytes) -> dict[str, int]:
    """The number of tasks, and of edges of each kind."""
    document = json.loads(text)
    counts = {"tasks": len(document["tasks"])}
    for edge in document["edges"]:
        counts[edge["kind"]] = counts.get(edge["kind"], 0) + 1
    return counts


def _replayed(text: bytes, wanted: str) -> dict[str, Any]:
    """The result of a replay that was equal; an error for every other."""
    result: dict[str, Any] = json.loads(text)
    if "names" in result:
        count, names = result["tasks"], result["names"]
        hint = nearest(wanted, names) or f"Names: {', '.join(names[:8])}."
        raise ConfigError(
            f"the run has no task '{wanted}': it has {count}, numbered from 0",
            key="replay",
            hint=hint,
        )
    title = f"task {result['task']} '{result['name']}'"
    if not result["executed"]:
        raise DeviceError(f"{title} was not executed in this run (replay)", status="refused")
    if not result["equal"]:
        at = result["difference"]
        raise DeviceError(
            f"{title} gave another result when it ran again: byte {at['byte']} of {at['tensor']} "
            f"was {at['before']:#04x} and is {at['after']:#04x}",
            status="wrong",
        )
    return result
